//! The hosts that a client has allowed for a session: the file `allowed-hosts.json` in its directory. saggar forgets them
//! with the sandbox, and the server allows them again in the next one.

use crate::durable_file::replace;
use crate::session_directory::session_directory;
use saggar_policy::{BadValue, HostRule};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use tokio::task::spawn_blocking;
use uuid::Uuid;

/// Returns the rules for hosts of a session.
///
/// # Errors
/// Fails if the file cannot be read or is invalid.
pub async fn read_allowed_hosts(data_dir: &Path, id: Uuid) -> io::Result<Vec<String>> {
    let file = file(data_dir, id);
    run_blocking(move || read(&file)).await
}

/// Returns the rules as saggar lists them, each once.
///
/// # Errors
/// Fails for a text that is not a rule for hosts (saggar-policy(5)).
pub fn canonical_rules(texts: &[String]) -> Result<Vec<String>, BadValue> {
    let mut rules = Vec::new();
    for text in texts {
        add_once(&mut rules, [text.parse::<HostRule>()?.to_string()]);
    }
    Ok(rules)
}

/// Appends the rules that are not in the list, and returns whether there is one.
pub fn add_once(all: &mut Vec<String>, rules: impl IntoIterator<Item = String>) -> bool {
    let before = all.len();
    for rule in rules {
        if !all.contains(&rule) {
            all.push(rule);
        }
    }
    all.len() > before
}

/// Adds rules for hosts of a session, and returns whether one is new. The caller holds the lock of the session.
///
/// # Errors
/// Fails if the file cannot be read or written.
pub async fn add_allowed_hosts(data_dir: &Path, id: Uuid, rules: &[String]) -> io::Result<bool> {
    let (file, rules) = (file(data_dir, id), rules.to_owned());
    run_blocking(move || {
        let mut all = read(&file)?;
        let is_changed = add_once(&mut all, rules);
        if is_changed {
            replace(&file, &serde_json::to_vec(&all)?)?;
        }
        Ok(is_changed)
    })
    .await
}

fn file(data_dir: &Path, id: Uuid) -> PathBuf {
    session_directory(data_dir, id).join("allowed-hosts.json")
}

async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    spawn_blocking(work).await.map_err(io::Error::other)?
}

fn read(file: &Path) -> io::Result<Vec<String>> {
    match fs::read(file) {
        Ok(text) => Ok(serde_json::from_slice(&text)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_a_rule_are_one_rule() {
        let texts = ["Example.COM", "example.com", "example.com:443,80", "EXAMPLE.com:80,443"];
        let rules = canonical_rules(&texts.map(str::to_owned)).unwrap();
        assert_eq!(rules.len(), 2, "{rules:?}");
        assert_eq!(rules[0], "example.com");
        assert!(canonical_rules(&["http://x/".to_owned()]).unwrap_err().to_string().contains("is a URL"));
    }

    #[test]
    fn rules_are_added_once_and_none_is_lost() {
        let texts = |all: &[&str]| -> Vec<String> { all.iter().map(|text| (*text).to_owned()).collect() };
        let mut all = texts(&["a", "b"]);
        assert!(add_once(&mut all, texts(&["c", "b", "c"])));
        assert_eq!(all, ["a", "b", "c"]);
        assert!(!add_once(&mut all, texts(&["b"])));
    }
}
