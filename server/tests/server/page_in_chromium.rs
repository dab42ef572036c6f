//! The web page in Chromium: what its user sees and does, by mouse and by keyboard. The screenshots are in
//! `target/screenshots`.

mod network_and_quarantine;

use crate::support::webdriver::{Browser, key};
use crate::support::{Client, Server, hello_folder, report_skip, wait_until};
use network_and_quarantine::{allow_host, allow_host_by_keyboard, leave_protected_files, release};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A message of the agent that a page could take for HTML, with characters that a text could hide or be reordered by.
const HOSTILE: &str = r#"echo-json: {"type":"assistant","message":{"content":[
    {"type":"text","text":"<img src=x onerror=\"document.title='run'\"> \u202etxt.exe\u2066"},
    {"type":"tool_use","id":"h","name":"<b>Bash</b>","input":{"command":"<script>document.title='run'</script>"}}]}}"#;

/// An address for documentation, which no host has.
const UNREACHABLE: &str = "192.0.2.1";

/// A server with the demo agent in a folder of its own, and a browser that shows its page.
struct Page {
    browser: Browser,
    server: Server,
    folder: TempDir,
}

impl Page {
    fn open() -> Result<Self, String> {
        let browser = Browser::start()?;
        let folder = tempfile::tempdir().unwrap();
        let config = tempfile::NamedTempFile::new().unwrap();
        fs::write(&config, format!("[sandbox]\noptions = [\"--ask-host\", \"{UNREACHABLE}:80\"]\n")).unwrap();
        let server = Server::start_with(&["--config", config.path().to_str().unwrap()], &[]);
        for name in ["CLAUDE.md", "saggar.toml"] {
            fs::copy(hello_folder().join(name), folder.path().join(name)).unwrap();
        }
        let agent = json!({ "name": "hello", "path": folder.path() });
        server.client().post("/api/agents", &agent).expect(201);
        browser.set_display(1000, 720, "light");
        let page = Page { browser, server, folder };
        page.browser.open(&format!("http://{}/dashboard", page.server.address()));
        Ok(page)
    }

    fn client(&self) -> Client {
        self.server.client()
    }

    /// The id of the session in the address.
    fn session(&self) -> String {
        let url = self.browser.url();
        url.split("#/sessions/").nth(1).unwrap().split('/').next().unwrap().to_owned()
    }

    fn save_screenshot(&self, name: &str) {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
        let file: PathBuf = target.join("screenshots").join(format!("{name}.png"));
        self.browser.save_screenshot(&file);
    }

    /// Screenshots in both colour schemes, and of a small screen, on which nothing is wider than the page.
    fn save_screenshots(&self, name: &str) {
        for (kind, width, height, scheme) in
            [("dark", 1000, 720, "dark"), ("small", 360, 720, "light"), ("light", 1000, 720, "light")]
        {
            self.browser.set_display(width, height, scheme);
            self.browser.run_script("document.activeElement.scrollIntoView({ block: 'nearest' })");
            let overflow =
                "return document.documentElement.scrollWidth - document.documentElement.clientWidth";
            assert_eq!(self.browser.run_script(overflow), 0, "{name}: wider than {width} pixels");
            let contrast = include_str!("support/contrast.js");
            assert_eq!(self.browser.run_script(contrast), json!([]), "{name}: {scheme}");
            self.save_screenshot(&format!("{name}-{kind}"));
        }
    }

    fn sign_in(&self) {
        let form = self.browser.find("//input[@id='key']");
        form.enter("ash_wrong\u{e007}");
        self.browser.wait_for_text("Invalid API key");
        self.save_screenshots("sign-in");
        assert_eq!(self.browser.find("//*[@role='alert']").text(), "Invalid API key");
        self.browser.find("//input[@id='key']").enter(&self.server.key());
        self.browser.button("Sign in").click();
        self.browser.find("//h1[text()='Sessions']");
        let key = self.server.key();
        assert!(!self.browser.url().contains(&key));
        let stored =
            self.browser.run_script("return [sessionStorage.length, localStorage.length, document.cookie]");
        assert_eq!(stored, json!([1, 0, ""]));
    }

    fn start_session(&self) {
        self.browser.button("Start session").click();
        self.browser.find("//span[text()='active']");
        self.browser.find("//textarea").click();
    }

    fn send(&self, text: &str) {
        let input = self.browser.find("//textarea[not(@disabled)]");
        input.enter(text);
        self.browser.press(&key::ENTER.to_string());
    }

    /// No error of a script or of a request, and no violation of the Content-Security-Policy. Requests that are refused
    /// as the test wants are no error.
    fn check_console(&self, refused: &[&str]) {
        let unexpected =
            |line: &String| !refused.iter().any(|status| line.contains(&format!("status of {status}")));
        let lines: Vec<String> = self.browser.console().into_iter().filter(unexpected).collect();
        assert!(lines.is_empty(), "{lines:#?}");
    }
}

#[test]
fn page_is_used_by_keyboard_and_screen_reader() {
    let page = match Page::open() {
        Ok(page) => page,
        Err(reason) => return report_skip(&reason),
    };
    let browser = &page.browser;
    browser.find("//input[@id='key']");
    check_controls(&page, &[("textbox", "API key"), ("button", "Sign in")]);
    browser.press(&format!("{}{}", page.server.key(), key::ENTER));
    browser.find("//h1[text()='Sessions']");
    wait_until("the heading has the focus", || browser.focused().text() == "Sessions");
    browser.find("//option[text()='hello']");
    check_controls(&page, &[("combobox", "Agent"), ("combobox", "Status"), ("button", "Sign out")]);
    move_to(browser, None, "Start session");
    browser.press(&key::ENTER.to_string());
    browser.find("//span[text()='active']");
    wait_until("the heading has the focus", || browser.focused().text().starts_with("hello"));
    move_to(browser, None, "Message");
    browser.press(&format!("ask: echo yes{}", key::ENTER));
    browser.find("//h3[text()='Permission to use Bash?']");
    let labels =
        [("textbox", "Message"), ("button", "Allow"), ("button", "Deny"), ("region", "Field command")];
    check_controls(&page, &labels);
    let landmarks =
        [("main", ""), ("banner", ""), ("navigation", "Main"), ("navigation", "Parts of the session")];
    for (role, label) in landmarks {
        let found = browser.find_all("//main | //header | //nav");
        let found: Vec<(String, String)> = found.iter().map(|element| element.role_and_label()).collect();
        assert!(found.contains(&(role.into(), label.into())), "{role} {label}: {found:?}");
    }
    move_to(browser, Some(key::SHIFT), "Allow");
    browser.press(&key::ENTER.to_string());
    browser.find("//p[text()='Allowed']");
    assert_eq!(browser.focused().text(), "Permission to use Bash?");
    browser.wait_for_text("the command ended with code 0");
    wait_until("the answer is announced", || {
        browser.run_script("return document.querySelector('[aria-live=polite]').textContent")
            == "Agent: the command ended with code 0"
    });
    move_to(browser, Some(key::SHIFT), "Logs");
    browser.press(&key::ENTER.to_string());
    page.client().run_turn(&page.session(), &format!("run: bash -c 'echo > /dev/udp/{UNREACHABLE}/99'"));
    browser.wait_for_text(&format!("network: {UNREACHABLE}:99 refused"));
    page.save_screenshots("logs");
    allow_host_by_keyboard(&page);
    move_to(browser, None, "Quarantine");
    browser.press(&key::ENTER.to_string());
    browser.wait_for_text("The quarantine is empty.");
    check_controls(&page, &[("button", "Refresh")]);
    move_to(browser, None, "Sign out");
    browser.press(&key::ENTER.to_string());
    browser.find("//input[@id='key']");
    assert_eq!(browser.run_script("return sessionStorage.length"), 0);
    page.check_console(&[]);
}

/// Presses Tab, with `held` Shift+Tab, until the control with this label has the focus.
fn move_to(browser: &Browser, held: Option<char>, label: &str) {
    let mut passed = Vec::new();
    while passed.len() < 60 {
        match held {
            Some(held) => browser.press_with(held, key::TAB),
            None => browser.press(&key::TAB.to_string()),
        }
        let focused = browser.focused().role_and_label().1;
        if focused == label {
            return;
        }
        passed.push(focused);
    }
    panic!("Tab does not reach {label}: {passed:?}");
}

/// Checks that each control has a role and a label, and that these are among them.
fn check_controls(page: &Page, expected: &[(&str, &str)]) {
    let controls =
        "//button | //a[@href] | //input | //select | //textarea | //summary | //*[@role='region']";
    let controls: Vec<(String, String)> =
        page.browser.find_all(controls).iter().map(|control| control.role_and_label()).collect();
    assert!(controls.iter().all(|(role, label)| role != "generic" && !label.is_empty()), "{controls:?}");
    for (role, label) in expected {
        assert!(controls.contains(&((*role).into(), (*label).into())), "{role} {label}: {controls:?}");
    }
}

#[test]
fn user_signs_in_converses_approves_and_applies() {
    let page = match Page::open() {
        Ok(page) => page,
        Err(reason) => return report_skip(&reason),
    };
    page.sign_in();
    page.check_console(&["401"]);
    page.start_session();
    converse(&page);
    approve(&page);
    show_hostile_text(&page);
    reload_and_go_back(&page);
    allow_host(&page);
    leave_protected_files(&page);
    apply(&page);
    release(&page);
    page.check_console(&["409"]);
}

fn converse(page: &Page) {
    let browser = &page.browser;
    browser.find("//textarea").enter("two");
    browser.press_with(key::SHIFT, key::ENTER);
    page.send("lines");
    browser.wait_for_text("You said: two\nlines");
    browser.wait_for_text("Turn ended");
    assert_eq!(browser.find("//textarea").text(), "");
    // Partial text is shown while the turn runs, and then the whole.
    page.send("count: 200");
    browser.wait_for_text("1 2 3 ");
    browser.button("Interrupt").click();
    browser.wait_for_text("Turn failed");
    assert!(browser.find_all("//li[contains(@class, 'draft')]").is_empty());
}

fn approve(page: &Page) {
    let browser = &page.browser;
    // The right-to-left override would show another command than the one that runs.
    page.client().run_turn(&page.session(), "run: echo by another client");
    browser.wait_for_text("run: echo by another client");
    page.send("ask: echo one > new.txt; echo two >> CLAUDE.md; echo done # \u{202e}safe");
    browser.find("//h3[text()='Permission to use Bash?']");
    let banner = browser.find("//*[@role='alert']");
    assert!(banner.text().starts_with("Permission to use Bash?"), "{}", banner.text());
    browser.button("Review").click();
    assert_eq!(browser.focused().text(), "Permission to use Bash?");
    let subject = browser.find("//pre[@aria-label='Field command']");
    let command = "echo one > new.txt; echo two >> CLAUDE.md; echo done # \\u{202e}safe";
    assert_eq!(subject.text(), command);
    page.save_screenshots("permission");
    browser.button("Allow").click();
    browser.find("//p[text()='Allowed']");
    let tool = browser.find("//summary[contains(., 'echo one') and contains(., 'succeeded')]");
    tool.click();
    assert_eq!(browser.find("//details[@open]//pre[@aria-label='Result']").text(), "done");
    tool.click();
    assert!(browser.find_all("//button[text()='Review' or text()='Allow']").is_empty());

    page.send("ask: echo two > denied");
    browser.button("Deny").click();
    browser.wait_for_text("I was not allowed to run it");
    page.save_screenshots("conversation");

    page.send(&format!("run: bash -c 'read < /dev/tcp/{UNREACHABLE}/80'"));
    browser.find(&format!("//h3[text()='Connection to {UNREACHABLE}:80?']"));
    browser.find(&format!("//dd[text()='{UNREACHABLE}']"));
    page.save_screenshots("network");
    browser.button("Deny").click();
    browser.wait_for_text("the command ended with code 1");
}

fn show_hostile_text(page: &Page) {
    page.client().run_turn(&page.session(), &HOSTILE.replace('\n', ""));
    page.browser.wait_for_text("<img src=x onerror=\"document.title='run'\"> \\u{202e}txt.exe\\u{2066}");
    page.browser.wait_for_text("<b>Bash</b>");
    assert_eq!(
        page.browser.run_script("return document.querySelectorAll('main img, main script, main b').length"),
        0
    );
    assert_eq!(page.browser.run_script("return document.title"), "Conversation · hello · saggar");
}

/// The entries of the conversation. Closed permission requests are left out, and so is how a tool call ended: a page
/// that was loaded afterwards does not have the former.
fn entries(browser: &Browser) -> Vec<String> {
    let found = browser.find_all("//ol[@aria-label='Conversation']/li[not(contains(@class, 'permission'))]");
    let ended = |text: String| text.replace("succeeded", "ended").replace("no result yet", "ended");
    found.iter().map(|entry| ended(entry.text())).collect()
}

/// A page that is loaded later has the same conversation in the same order.
fn reload_and_go_back(page: &Page) {
    let browser = &page.browser;
    let before = entries(browser);
    browser.reload();
    browser.wait_for_text("<b>Bash</b>");
    assert_eq!(entries(browser), before);
    browser.find("//a[text()='Sessions']").click();
    browser.find("//h2[text()='Active (1)']");
    // A user, the agent, and the tool calls of the turns above.
    browser.wait_for_text("4 tool calls");
    page.save_screenshots("sessions");
    browser.back();
    browser.find("//h1[contains(., 'hello')]");
}

fn apply(page: &Page) {
    let browser = &page.browser;
    browser.find("//a[text()='Changes']").click();
    browser.wait_for_text("+two");
    assert_eq!(browser.find("//ins[contains(., '+two')]").text(), "+two");
    browser.button("Apply").click();
    browser.find("//dialog//h2[text()='Apply 2 changes to the folder of the session?']");
    page.save_screenshots("apply");
    browser.find("//dialog//button[text()='Apply']").click();
    browser.wait_for_text("stop the session first");
    page.save_screenshot("refused");
    // The agent can change files until its sandbox has ended: they are shown before they can be applied.
    let change = json!({ "command": "echo later > new.txt" });
    page.client().post(&format!("/api/sessions/{}/exec", page.session()), &change).expect(200);
    browser.button("Stop the session").click();
    browser.find("//span[text()='stopped']");
    assert_eq!(browser.focused().text(), "Apply");
    browser.wait_for_text("+later");
    page.save_screenshots("changes");
    // A cancelled question changes nothing.
    browser.button("Discard").click();
    browser.button("Cancel").click();
    assert_eq!(browser.focused().text(), "Discard");
    browser.find("//label[contains(., 'CLAUDE.md')]").click();
    browser.button("Apply").click();
    browser.find("//dialog//h2[text()='Apply 1 change to the folder of the session?']");
    browser.find("//dialog//button[text()='Apply']").click();
    browser.wait_for_text("CLAUDE.md");
    let applied = page.folder.path().join("new.txt");
    wait_until("the change is in the folder", || {
        fs::read_to_string(&applied).is_ok_and(|text| text == "later\n")
    });
    wait_until("one change is left", || browser.find_all("//ul[@class='files']/li").len() == 1);
    browser.button("Discard").click();
    browser.find("//dialog//button[text()='Discard']").click();
    browser.wait_for_text("The workspace has no changes.");
    let prompt = |folder: &Path| fs::read_to_string(folder.join("CLAUDE.md")).unwrap();
    assert_eq!(prompt(page.folder.path()), prompt(&hello_folder()));
}
