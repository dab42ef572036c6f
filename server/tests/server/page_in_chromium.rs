//! The web page in Chromium: what its user sees and does, by mouse and by keyboard. The screenshots are in
//! `target/screenshots`.

use crate::support::webdriver::{Browser, key};
use crate::support::{Client, Server, hello_folder, report_skip, wait_until};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A message of the agent that a page could take for HTML, with characters that a text could hide or be reordered by.
const HOSTILE: &str = r#"echo-json: {"type":"assistant","message":{"content":[
    {"type":"text","text":"<img src=x onerror=\"document.title='run'\"> \u202etxt.exe\u2066"},
    {"type":"tool_use","id":"h","name":"<b>Bash</b>","input":{"command":"<script>document.title='run'</script>"}}]}}"#;

/// A server with the demo agent in a folder of its own, and a browser that shows its page.
struct Page {
    browser: Browser,
    server: Server,
    folder: TempDir,
}

impl Page {
    fn open() -> Result<Self, String> {
        let browser = Browser::start()?;
        let server = Server::start();
        let folder = tempfile::tempdir().unwrap();
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
            let overflow =
                "return document.documentElement.scrollWidth - document.documentElement.clientWidth";
            assert_eq!(self.browser.run_script(overflow), 0, "{name}: wider than {width} pixels");
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
    apply(&page);
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
    assert!(browser.find_all("//button[text()='Review' or text()='Allow']").is_empty());

    page.send("ask: echo two > denied");
    browser.button("Deny").click();
    browser.wait_for_text("I was not allowed to run it");
    page.save_screenshots("conversation");
}

fn show_hostile_text(page: &Page) {
    page.client().run_turn(&page.session(), HOSTILE);
    page.browser.wait_for_text("<img src=x onerror=\"document.title='run'\"> \\u{202e}txt.exe\\u{2066}");
    page.browser.wait_for_text("<b>Bash</b>");
    assert_eq!(
        page.browser.run_script("return document.querySelectorAll('main img, main script, main b').length"),
        0
    );
    assert_eq!(page.browser.run_script("return document.title"), "Conversation · hello · saggar");
}

/// A loaded page has all that happened, in the same order.
fn reload_and_go_back(page: &Page) {
    let browser = &page.browser;
    let entries = || {
        let found = browser.find_all("//ol[@aria-label='Conversation']/li");
        let is_closed_request = |text: &String| text.starts_with("Permission to use");
        let texts = found.iter().map(|entry| entry.text());
        texts
            .filter(|text| !is_closed_request(text))
            .map(|text| text.replace("failed", "ended"))
            .collect::<Vec<_>>()
    };
    let before = entries();
    browser.reload();
    browser.wait_for_text("<b>Bash</b>");
    let same = |text: &String| text.replace("succeeded", "ended").replace("no result yet", "ended");
    let before: Vec<String> = before.iter().map(same).collect();
    wait_until("the same entries", || entries().iter().map(same).collect::<Vec<_>>() == before);
    browser.find("//a[text()='Sessions']").click();
    browser.find("//h2[text()='Active (1)']");
    // A user, the agent, and the tool calls of the turns above.
    browser.wait_for_text("3 tool calls");
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
    page.save_screenshots("changes");
    browser.button("Stop the session").click();
    browser.find("//span[text()='stopped']");
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
        fs::read_to_string(&applied).is_ok_and(|text| text == "one\n")
    });
    wait_until("one change is left", || browser.find_all("//ul[@class='files']/li").len() == 1);
    browser.find("//label[contains(., 'CLAUDE.md')]").click();
    browser.button("Discard").click();
    browser.find("//dialog//button[text()='Discard']").click();
    browser.wait_for_text("The workspace has no changes.");
    let prompt = |folder: &Path| fs::read_to_string(folder.join("CLAUDE.md")).unwrap();
    assert_eq!(prompt(page.folder.path()), prompt(&hello_folder()));
}
