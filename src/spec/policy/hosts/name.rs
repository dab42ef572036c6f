//! The name of a host, as DNS has it.

use std::fmt;

/// The longest name in text, without a dot at its end (RFC 1035, 2.3.4).
const LONGEST: usize = 253;
/// The longest label (RFC 1035, 2.3.4).
const LONGEST_LABEL: usize = 63;

/// The name of a host: lower case, without a dot at its end, and never a spelling of an address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DnsName(String);

impl DnsName {
    /// Reads a name as it stands in a policy, a question of DNS, TLS or HTTP. Upper case is folded, and one dot at
    /// the end dropped.
    ///
    /// # Errors
    /// Why it is no name, as the end of a sentence that begins with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let name = text.strip_suffix('.').unwrap_or(text);
        if name.is_empty() {
            return Err("is empty".into());
        }
        if !name.is_ascii() {
            return Err("is not ASCII; write it as DNS has it: xn--…".into());
        }
        if name.len() > LONGEST {
            return Err(format!("is longer than {LONGEST} bytes"));
        }
        name.split('.').try_for_each(label)?;
        // inet_aton(3) takes 2130706433, 0x7f.1 and 0177.0.0.1 for addresses, and so do browsers with whatever ends
        // in a number. No name that DNS knows does.
        if name.rsplit('.').next().is_some_and(is_number) {
            return Err("ends in a number, as an address does; write an address as 192.0.2.7".into());
        }
        Ok(DnsName(name.to_ascii_lowercase()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this name has labels of its own before those of `parent`.
    pub(super) fn is_below(&self, parent: &DnsName) -> bool {
        self.0.strip_suffix(parent.as_str()).is_some_and(|own| own.ends_with('.'))
    }
}

fn label(label: &str) -> Result<(), String> {
    if label.is_empty() {
        return Err("has an empty label".into());
    }
    if label.len() > LONGEST_LABEL {
        return Err(format!("has a label that is longer than {LONGEST_LABEL} bytes"));
    }
    if let Some(c) = label.chars().find(|c| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '_')) {
        return Err(format!("has the character {c:?}, which no name of a host has"));
    }
    if label.starts_with('-') || label.ends_with('-') {
        return Err("has a label that begins or ends with \"-\"".into());
    }
    Ok(())
}

/// Whether programs read this label as a number: decimal, octal or hexadecimal.
fn is_number(label: &str) -> bool {
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
