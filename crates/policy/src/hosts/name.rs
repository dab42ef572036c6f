//! DNS names of hosts.

use std::fmt;

/// The longest name in bytes, without a trailing dot (RFC 1035, 2.3.4).
const MAX_NAME_BYTES: usize = 253;
/// The longest label in bytes (RFC 1035, 2.3.4).
const MAX_LABEL_BYTES: usize = 63;

/// A DNS name: lower case, without a trailing dot, and never a spelling of an address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DnsName(String);

impl DnsName {
    /// Parses a name from a policy, a DNS query, TLS or HTTP. Upper case is folded, and one trailing dot is
    /// removed.
    ///
    /// # Errors
    /// The reason why the text is not a name, as the end of a sentence that begins with the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let name = text.strip_suffix('.').unwrap_or(text);
        if name.is_empty() {
            return Err("is empty".into());
        }
        if !name.is_ascii() {
            return Err("is not ASCII; write it as DNS has it: xn--…".into());
        }
        if name.len() > MAX_NAME_BYTES {
            return Err(format!("is longer than {MAX_NAME_BYTES} bytes"));
        }
        name.split('.').try_for_each(check_label)?;
        // inet_aton(3) accepts 2130706433, 0x7f.1 and 0177.0.0.1 as addresses, and so do browsers for any
        // host that ends in a number. No DNS name in use ends in one.
        if name.rsplit('.').next().is_some_and(is_numeric_label) {
            return Err("ends in a number, as an address does; write an address as 192.0.2.7".into());
        }
        Ok(DnsName(name.to_ascii_lowercase()))
    }

    /// The name as a string.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this name is a subdomain of `parent`.
    pub(super) fn is_below(&self, parent: &DnsName) -> bool {
        self.0.strip_suffix(parent.as_str()).is_some_and(|own| own.ends_with('.'))
    }
}

fn check_label(label: &str) -> Result<(), String> {
    if label.is_empty() {
        return Err("has an empty label".into());
    }
    if label.len() > MAX_LABEL_BYTES {
        return Err(format!("has a label that is longer than {MAX_LABEL_BYTES} bytes"));
    }
    if let Some(c) = label.chars().find(|c| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '_')) {
        return Err(format!("has the character {c:?}, which no name of a host has"));
    }
    if label.starts_with('-') || label.ends_with('-') {
        return Err("has a label that begins or ends with \"-\"".into());
    }
    Ok(())
}

/// Whether programs parse this label as a number: decimal, octal or hexadecimal.
fn is_numeric_label(label: &str) -> bool {
    let hexadecimal = label.strip_prefix("0x").or_else(|| label.strip_prefix("0X"));
    match hexadecimal {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => label.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

impl fmt::Display for DnsName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
