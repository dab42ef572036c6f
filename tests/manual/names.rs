//! The tables of protected names in saggar-security(7) against those of the code.

use super::page::Page;
use saggar::spec::protect::{HOME_NAMES, ProtectedName, WORK_TREE_NAMES};

/// Rows as the page prints them: a program and its names, in order.
fn rows(table: &[ProtectedName]) -> Vec<(&str, Vec<&str>)> {
    let mut rows: Vec<(&str, Vec<&str>)> = Vec::new();
    for name in table {
        match rows.last_mut() {
            Some((program, names)) if *program == name.program => names.push(name.path),
            _ => rows.push((name.program, vec![name.path])),
        }
    }
    rows
}

#[test]
fn protected_names_of_the_page_are_those_of_the_code() {
    let page = Page::read("saggar-security.7");
    let mut printed: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in page.subsection("Protected names") {
        if let Some(program) = line.strip_prefix(".It ") {
            printed.push((program, Vec::new()));
        } else if let (Some(names), Some((_, row))) = (line.strip_prefix(".Pa "), printed.last_mut()) {
            row.extend(names.split(' '));
        }
    }
    let expected: Vec<_> = rows(WORK_TREE_NAMES).into_iter().chain(rows(HOME_NAMES)).collect();
    assert_eq!(printed, expected);
}
