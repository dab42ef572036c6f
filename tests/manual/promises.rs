//! saggar-security(7) names a test for each promise: each is there.

use std::fs;
use std::path::Path;

/// The tests that the page names, as `module::file::function`.
fn named(page: &str) -> Vec<&str> {
    let words = page.lines().filter_map(|line| line.strip_prefix(".Ql "));
    words
        .filter_map(|words| words.split_whitespace().next())
        .filter(|word| word.matches("::").count() == 2)
        .collect()
}

#[test]
fn every_test_that_the_threat_model_names_is_there() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(top.join("man/saggar-security.7")).unwrap();
    let mut missing = Vec::new();
    for test in named(&page) {
        let (file, function) = test.rsplit_once("::").unwrap();
        let path = top.join("tests").join(file.replace("::", "/")).with_extension("rs");
        let source = fs::read_to_string(path).unwrap_or_default();
        if !source.contains(&format!("fn {function}(")) {
            missing.push(test);
        }
    }
    assert!(missing.is_empty(), "{missing:?}");
}

/// Every promise ends in the name of a test.
#[test]
fn every_promise_has_a_test() {
    let page =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("man/saggar-security.7")).unwrap();
    let (_, rest) = page.split_once(".Sh PROMISES\n").unwrap();
    let (promises, _) = rest.split_once(".Sh ").unwrap();
    for promise in promises.split(".It ").skip(1) {
        assert!(!named(promise).is_empty(), "no test: {promise}");
    }
}
