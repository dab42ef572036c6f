//! What each kind of agent speaks, as pure translators.
