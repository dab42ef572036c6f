//! Variables of agents and sessions.

use super::error::ApiError;
use std::collections::BTreeMap;

/// Variables by name.
pub(super) type Variables = BTreeMap<String, String>;

/// Checks the names and values that a client gives.
///
/// # Errors
/// One cannot be a variable.
pub(super) fn check(variables: &Variables) -> Result<(), ApiError> {
    for (name, value) in variables {
        let is_word = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if name.is_empty() || !is_word || name.starts_with(|first: char| first.is_ascii_digit()) {
            let text = format!("{name:?} cannot be the name of a variable: use letters, digits and _");
            return Err(ApiError::bad_request(text));
        }
        if value.contains('\0') {
            return Err(ApiError::bad_request(format!("The value of {name} has a NUL character")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_a_variable_passes() {
        let passes = |name: &str, value: &str| check(&BTreeMap::from([(name.into(), value.into())])).is_ok();
        assert!(passes("A_1", "x\ny=") && passes("_", ""));
        for bad in ["", "1A", "A B", "A=B", "Ä", "A\n"] {
            assert!(!passes(bad, "x"), "{bad:?}");
        }
        assert!(!passes("A", "x\0y"));
    }
}
