mod layers {}
