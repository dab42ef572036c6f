//! The parts of the page for the network and the quarantine of a session.

use super::{Page, UNREACHABLE, check_controls, move_to};
use crate::support::wait_until;
use crate::support::webdriver::key;
use serde_json::json;
use std::fs;
use std::path::Path;

pub(super) fn allow_host_by_keyboard(page: &Page) {
    let browser = &page.browser;
    move_to(browser, None, "Network");
    browser.press(&key::ENTER.to_string());
    page.client().run_turn(&page.session(), &format!("run: bash -c 'exec 3<>/dev/tcp/{UNREACHABLE}/98'"));
    let allow = format!("Allow {UNREACHABLE}:98");
    browser.find(&format!("//button[@aria-label='{allow}']"));
    check_controls(page, &[("region", "Hosts"), ("button", &allow)]);
    move_to(browser, None, &allow);
    browser.press(&key::ENTER.to_string());
    browser.find("//dialog//h2[text()='Allow connections to this host?']");
    assert_eq!(browser.focused().text(), "Cancel");
    move_to(browser, None, "Allow");
    browser.press(&key::ENTER.to_string());
    browser.find(&format!("//dd//code[text()='{UNREACHABLE}:98']"));
    wait_until("the table has the focus", || browser.focused().role_and_label().1 == "Hosts");
    wait_until("the change is announced", || {
        browser.run_script("return document.querySelector('[aria-live=polite]').textContent")
            == format!("{UNREACHABLE}:98 is allowed")
    });
}

/// A connection to a host without a rule is refused until its user allows it.
pub(super) fn allow_host(page: &Page) {
    let browser = &page.browser;
    let connect = json!({ "command": format!("bash -c 'exec 3<>/dev/tcp/{UNREACHABLE}/99'") });
    let connects = || {
        let exec = format!("/api/sessions/{}/exec", page.session());
        page.client().post(&exec, &connect).expect(200)["exitCode"] == 0
    };
    assert!(!connects());
    browser.find("//a[text()='Network']").click();
    let label = format!("Allow {UNREACHABLE}:99");
    let allow = || browser.find(&format!("//button[@aria-label='{label}']"));
    allow();
    page.save_screenshots("refused-host");
    allow().click();
    browser.find("//dialog//h2[text()='Allow connections to this host?']");
    for text in [UNREACHABLE, "99", &page.session()] {
        browser.find(&format!("//dialog//dd[text()='{text}']"));
    }
    page.save_screenshots("allow-host");
    browser.button("Cancel").click();
    assert_eq!(browser.focused().role_and_label().1, label);
    assert!(!connects());
    allow().click();
    browser.find("//dialog//button[text()='Allow']").click();
    browser.find(&format!("//dd//code[text()='{UNREACHABLE}:99']"));
    assert!(connects());
    page.save_screenshots("allowed-host");
}

/// The agent leaves files that saggar moves to quarantine before the next turn.
pub(super) fn leave_protected_files(page: &Page) {
    page.client().run_turn(&page.session(), "run: echo evil > .bashrc; echo evil > .envrc");
    page.client().run_turn(&page.session(), "hi");
}

/// Files are removed and restored, of which one needs another confirmation.
pub(super) fn release(page: &Page) {
    let browser = &page.browser;
    let record = page.server.session_record(&page.session());
    let file = Path::new(record["workspace"].as_str().unwrap()).join(".bashrc");
    fs::write(&file, "mine").unwrap();
    browser.find("//a[text()='Quarantine']").click();
    let button = |label: &str| browser.find(&format!("//button[@aria-label='{label}']"));
    button("Remove .envrc");
    page.save_screenshots("quarantine");
    button("Remove .envrc").click();
    browser.find("//dialog//h2[text()='Remove this file?']");
    browser.find("//dialog//button[text()='Remove']").click();
    wait_until("one file is left", || browser.find_all("//ul[@class='quarantined']/li").len() == 1);
    assert_eq!(browser.focused().text(), "Refresh");
    for confirm in
        ["//button[@aria-label='Restore .bashrc']", "//button[contains(., 'quarantine the other')]"]
    {
        assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
        browser.find(confirm).click();
        browser.find("//dialog//h2[text()='Restore this file?']");
        browser.find("//dialog//p[contains(., 'outside of the sandbox')]");
        page.save_screenshots("restore");
        browser.find("//dialog//button[text()='Restore']").click();
        wait_until("the question is closed", || browser.find_all("//dialog").is_empty());
    }
    wait_until("the file is restored", || fs::read_to_string(&file).is_ok_and(|text| text == "evil\n"));
    browser.find("//li[contains(., 'was in the place of')]");
}
