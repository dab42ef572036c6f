//! Limits that change while a sandbox runs: what the control socket says, as one more layer.

use super::document::{Document, Limits};
use super::effective::{Effective, Lock};
use super::layer::Layer;
use super::parse::{self, Format};
use super::tighten::keep_locked;
use super::validate::validate;
use crate::error::{Code, Error, Result};

/// The policy `now` with these limits, the JSON of a `[limits]` table. All is right with them in itself, and nothing
/// is named that cannot change.
///
/// # Errors
/// [`Code::Invalid`] for what is no such table; [`Code::Unsupported`] for a limit that holds as it was set at the start.
pub fn change(now: &Effective, limits: &str) -> Result<Effective> {
    let source = "update";
    let document = parse::parse(source, Format::Json, format!("{{\"limits\":{limits}}}").as_bytes())?;
    let wrong = |why: String| Error::new(Code::Invalid, format!("{source}: {why}"));
    validate(&document).map_err(|invalid| wrong(format!("{}: {}", invalid.key, invalid.why)))?;
    if document.limits == Limits::default() {
        return Err(
            wrong("no limit is named".into()).hint("name one, as in {\"limits\":{\"memory\":\"1G\"}}")
        );
    }
    let Limits { disk, inodes, fsize, nofile, script, .. } = &document.limits;
    let fixed = [
        ("disk", disk.is_some()),
        ("inodes", inodes.is_some()),
        ("fsize", fsize.is_some()),
        ("nofile", nofile.is_some()),
        ("script", script.is_some()),
    ];
    if let Some((name, _)) = fixed.into_iter().find(|(_, named)| *named) {
        let message = format!("{source}: limits.{name} is set when a sandbox starts, and cannot change");
        return Err(Error::new(Code::Unsupported, message).hint("start it with another value"));
    }
    keep_locked(now, &document).map_err(|(widening, Lock { part, layer, .. })| {
        let message =
            format!("{source} {widening}; {layer} locks {part}, which may only be tightened after it");
        Error::new(Code::Unsupported, message).hint("ask for less")
    })?;
    let mut changed = now.clone();
    changed.merge(Document { limits: document.limits, ..Document::default() }, &Layer::Control);
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::super::Home;
    use super::*;

    #[test]
    fn limits_are_those_of_a_policy() {
        let now = Effective::built_in(Home::Session);
        let changed = change(&now, r#"{"memory":"1G","cpus":0.5,"idle":"1h"}"#).unwrap();
        assert_eq!(
            (changed.limits.memory.value.to_string().as_str(), &changed.limits.memory.layer),
            ("1G", &Layer::Control)
        );
        assert_eq!(changed.limits.pids, now.limits.pids);
        assert_eq!(changed.limits.idle.unwrap().value.duration().as_secs(), 3600);
    }

    #[test]
    fn what_the_operator_has_locked_is_only_tightened() {
        let mut now = Effective::built_in(Home::Session);
        let layer = Layer::Operator(std::path::Path::new("/etc/saggar/config.toml").into());
        now.merge(toml::from_str("locked = ['limits']\nlimits.timeout = '1h'").unwrap(), &layer);
        let refusal = |text: &str| change(&now, text).unwrap_err().to_string();
        insta::assert_snapshot!(refusal(r#"{"memory":"4G"}"#), @"update asks for limits.memory = 4G, above the 2G of built-in; /etc/saggar/config.toml locks limits, which may only be tightened after it");
        assert!(refusal(r#"{"timeout":"2h"}"#).contains("limits.timeout = 2h, above the 1h"));
        let less = change(&now, r#"{"memory":"1G","timeout":"30m","idle":"1m"}"#).unwrap();
        // What counts is what was locked, and not what was tightened since.
        change(&less, r#"{"memory":"2G","timeout":"1h"}"#).unwrap();
        assert!(change(&less, r#"{"timeout":"61m"}"#).is_err());
    }

    #[test]
    fn what_is_not_a_limit_that_can_change_is_refused_by_name() {
        let now = Effective::built_in(Home::Session);
        let refusal = |text: &str| {
            let error = change(&now, text).unwrap_err();
            format!("{}: {error}", error.code().name())
        };
        let texts = [
            "{}",
            "[]",
            "3",
            r#"{"memory":null}"#,
            r#"{"memory":"much"}"#,
            r#"{"memory":512}"#,
            r#"{"memry":"1G"}"#,
            r#"{"disk":"1G"}"#,
            r#"{"nofile":1000}"#,
            r#"{"cpu_idle":true,"cpu_weight":5}"#,
        ];
        insta::assert_snapshot!(texts.map(refusal).join("\n"));
    }
}
