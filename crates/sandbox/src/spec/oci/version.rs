//! `ociVersion`: the supported versions of the specification.

use super::ConfigWarning;
use super::field_path::FieldPath;
use saggar_sys::error::Result;
use semver::Version;

/// The oldest supported version.
pub const OLDEST_OCI_VERSION: &str = "1.0.0";
/// The newest version that is completely supported.
pub const NEWEST_OCI_VERSION: &str = "1.3.0";

/// Checks `ociVersion`. Versions with one major number are compatible in both directions (config.md,
/// Specification version), so a later minor version is accepted with a warning: fields that it added are
/// unknown and ignored.
pub(super) fn check_version(version: Option<String>, warnings: &mut Vec<ConfigWarning>) -> Result<String> {
    let field = FieldPath::root("ociVersion");
    let text = version.filter(|text| !text.is_empty()).ok_or_else(|| {
        field
            .missing()
            .hint(format!("name the version of the specification: \"ociVersion\": \"{NEWEST_OCI_VERSION}\""))
    })?;
    let version = Version::parse(&text)
        .map_err(|error| field.invalid(format_args!("must be SemVer, is {text:?}: {error}")))?;
    // Pre-releases of the runtime specification, such as 1.0.0-rc5, had other fields.
    if version.major != 1 || version < Version::new(1, 0, 0) {
        let error = field.invalid(format_args!("must be a version 1.x.y, is {text}"));
        return Err(error.hint(format!("saggar knows {OLDEST_OCI_VERSION} to {NEWEST_OCI_VERSION}")));
    }
    if version.minor > 3 {
        warnings.push(
            field.warning(format_args!("is {text}; features newer than {NEWEST_OCI_VERSION} are ignored")),
        );
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(version: &str) -> Result<usize, String> {
        let mut warnings = Vec::new();
        let checked = check_version(Some(version.to_owned()), &mut warnings);
        checked.map(|_| warnings.len()).map_err(|error| error.to_string())
    }

    #[test]
    fn versions_of_major_one_are_taken_and_newer_ones_warned_of() {
        for version in ["1.0.0", "1.0.2-dev", "1.0.1", "1.1.0+dev", "1.2.1", "1.3.0", "1.3.1"] {
            assert_eq!(checked(version), Ok(0), "{version}");
        }
        assert_eq!(checked("1.4.0"), Ok(1));
    }

    #[test]
    fn other_versions_are_refused_by_name() {
        for version in
            ["0.9.0", "2.0.0", "1.0.0-rc5", "1", "1.0", "v1.0.0", "1.0.0.0", "latest", " 1.0.0", "01.0.0"]
        {
            let error = checked(version).unwrap_err();
            assert!(error.starts_with("ociVersion must be"), "{version}: {error}");
        }
        assert!(
            check_version(None, &mut Vec::new())
                .unwrap_err()
                .to_string()
                .starts_with("ociVersion is missing")
        );
    }
}
