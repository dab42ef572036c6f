//! Environment variables of agents and sessions.

use super::error::ApiError;
use std::collections::BTreeMap;

/// Environment variables by name.
pub(super) type Variables = BTreeMap<String, String>;

/// Checks that names and values are valid environment variables.
///
/// # Errors
/// 400 names the first invalid variable.
pub(super) fn check(variables: &Variables) -> Result<(), ApiError> {
    for (name, value) in variables {
        let is_word = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if name.is_empty() || !is_word || name.starts_with(|first: char| first.is_ascii_digit()) {
            let text = format!(
                "{name:?} is not a valid variable name: use letters, digits and _, not a digit first"
            );
            return Err(ApiError::bad_request(text));
        }
        if value.contains('\0') {
            return Err(ApiError::bad_request(format!("The value of {name} contains a NUL character")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_variables_pass() {
        let passes = |name: &str, value: &str| check(&BTreeMap::from([(name.into(), value.into())])).is_ok();
        assert!(passes("A_1", "x\ny=") && passes("_", ""));
        for bad in ["", "1A", "A B", "A=B", "Ä", "A\n"] {
            assert!(!passes(bad, "x"), "{bad:?}");
        }
        assert!(!passes("A", "x\0y"));
    }
}
