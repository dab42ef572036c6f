//! The version of the running kernel, for what cannot be tried.

/// Whether the kernel is at least this version. A name that has no version (uname(2)) is of an older one.
pub fn is_at_least(major: u32, minor: u32) -> bool {
    let Ok(name) = nix::sys::utsname::uname() else { return false };
    parse(&name.release().to_string_lossy()).is_some_and(|version| version >= (major, minor))
}

fn parse(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Some((major, minor)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_two_numbers_of_a_release_are_its_version() {
        assert_eq!(parse("6.12.43+deb13-cloud-amd64"), Some((6, 12)));
        assert_eq!(parse("5.14-rc1"), Some((5, 14)));
        assert_eq!(parse("unknown"), None);
        assert!(is_at_least(5, 13) && !is_at_least(u32::MAX, 0));
    }
}
