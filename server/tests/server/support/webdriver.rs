//! A browser for tests: Chromium, driven over the W3C WebDriver protocol by `chromedriver`.

use super::wait_until;
use base64::Engine;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use ureq::Agent;

/// The key under which WebDriver has the id of an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// Options of Chromium. It has no sandbox of its own, since root cannot use that, and reaches loopback only.
const OPTIONS: [&str; 6] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--force-device-scale-factor=1",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
];

/// A running browser with one tab. Dropping it ends the browser.
#[derive(Debug)]
pub(crate) struct Browser {
    driver: Child,
    agent: Agent,
    /// The URL of the WebDriver session.
    session: String,
    /// The profile and all other files of the browser.
    _directory: TempDir,
}

/// A key that has no character, as WebDriver names it.
pub(crate) mod key {
    pub(crate) const TAB: char = '\u{e004}';
    pub(crate) const ENTER: char = '\u{e007}';
    pub(crate) const SHIFT: char = '\u{e008}';
}

impl Browser {
    /// Starts a browser. The error is the reason to skip a test.
    pub(crate) fn start() -> Result<Self, String> {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new("chromedriver");
        command.arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
        for name in ["HOME", "TMPDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"] {
            command.env(name, directory.path());
        }
        let mut driver = command
            .spawn()
            .map_err(|error| format!("chromedriver: {error} (apt install chromium chromium-driver)"))?;
        let port = read_port(&mut driver);
        let settings = Agent::config_builder().http_status_as_error(false);
        let agent: Agent = settings.timeout_global(Some(Duration::from_secs(120))).build().into();
        let mut browser = Browser {
            driver,
            agent,
            session: format!("http://127.0.0.1:{port}/session"),
            _directory: directory,
        };
        let session = browser.create_session()["sessionId"].as_str().unwrap().to_owned();
        browser.session = format!("{}/{session}", browser.session);
        Ok(browser)
    }

    fn create_session(&self) -> Value {
        let profile = format!("--user-data-dir={}", self._directory.path().join("profile").display());
        let options: Vec<&str> = OPTIONS.into_iter().chain([profile.as_str()]).collect();
        self.send(
            "POST",
            "",
            &json!({ "capabilities": { "alwaysMatch": {
                "browserName": "chrome",
                "goog:chromeOptions": { "args": options },
                "goog:loggingPrefs": { "browser": "ALL" },
            } } }),
        )
    }

    /// Sends a command and returns its value.
    fn send(&self, method: &str, path: &str, body: &Value) -> Value {
        self.try_send(method, path, body).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    fn try_send(&self, method: &str, path: &str, body: &Value) -> Result<Value, Value> {
        let url = format!("{}{path}", self.session);
        let mut response = match method {
            "GET" => self.agent.get(url).call(),
            "DELETE" => self.agent.delete(url).call(),
            _ => self.agent.post(url).send_json(body),
        }
        .unwrap();
        let value = response.body_mut().read_json::<Value>().unwrap()["value"].take();
        if response.status() == 200 { Ok(value) } else { Err(value) }
    }

    fn get(&self, path: &str) -> Value {
        self.send("GET", path, &Value::Null)
    }

    /// Opens an address.
    pub(crate) fn open(&self, url: &str) {
        self.send("POST", "/url", &json!({ "url": url }));
    }

    /// Loads the page again.
    pub(crate) fn reload(&self) {
        self.send("POST", "/refresh", &json!({}));
    }

    /// Goes back to the previous address.
    pub(crate) fn back(&self) {
        self.send("POST", "/back", &json!({}));
    }

    /// The address of the page.
    pub(crate) fn url(&self) -> String {
        text(&self.get("/url"))
    }

    /// Runs a script in the page, and returns its value.
    pub(crate) fn run_script(&self, script: &str) -> Value {
        self.send("POST", "/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Sends a command of the DevTools protocol.
    pub(crate) fn devtools(&self, command: &str, parameters: &Value) -> Value {
        self.send("POST", "/goog/cdp/execute", &json!({ "cmd": command, "params": parameters }))
    }

    /// Sets the size of the page in pixels, and the preferred colour scheme.
    pub(crate) fn set_display(&self, width: u32, height: u32, scheme: &str) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", &size);
        let scheme = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.devtools("Emulation.setEmulatedMedia", &scheme);
    }

    /// Writes a screenshot of the visible part of the page.
    pub(crate) fn save_screenshot(&self, file: &Path) {
        let image = text(&self.get("/screenshot"));
        let bytes = base64::engine::general_purpose::STANDARD.decode(image).unwrap();
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, bytes).unwrap();
    }

    /// The displayed elements that an XPath selects.
    pub(crate) fn find_all(&self, path: &str) -> Vec<Element<'_>> {
        let found = self.send("POST", "/elements", &json!({ "using": "xpath", "value": path }));
        let elements = found.as_array().unwrap().iter().map(|id| Element::new(self, id));
        elements.filter(Element::is_displayed).collect()
    }

    /// Waits for the first displayed element that an XPath selects.
    pub(crate) fn find(&self, path: &str) -> Element<'_> {
        let mut found = None;
        wait_until(path, || {
            found = self.find_all(path).into_iter().next();
            found.is_some()
        });
        Element { selector: Some(path.to_owned()), ..found.unwrap() }
    }

    /// Waits for the button with this label.
    pub(crate) fn button(&self, label: &str) -> Element<'_> {
        self.find(&format!("//button[normalize-space()='{label}' and not(@disabled)]"))
    }

    /// Waits until the page shows this text.
    pub(crate) fn wait_for_text(&self, expected: &str) {
        wait_until(expected, || {
            self.run_script("return document.body.innerText")
                .as_str()
                .is_some_and(|text| text.contains(expected))
        });
    }

    /// The element with the focus.
    pub(crate) fn focused(&self) -> Element<'_> {
        Element::new(self, &self.get("/element/active"))
    }

    /// Presses and releases keys, one after another.
    pub(crate) fn press(&self, keys: &str) {
        let event = |kind: &str, key: char| json!({ "type": kind, "value": key.to_string() });
        let events: Vec<Value> =
            keys.chars().flat_map(|key| [event("keyDown", key), event("keyUp", key)]).collect();
        self.perform(events);
    }

    /// Presses a key while another is held.
    pub(crate) fn press_with(&self, held: char, key: char) {
        let event = |kind: &str, key: char| json!({ "type": kind, "value": key.to_string() });
        self.perform(vec![
            event("keyDown", held),
            event("keyDown", key),
            event("keyUp", key),
            event("keyUp", held),
        ]);
    }

    fn perform(&self, events: Vec<Value>) {
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": events });
        self.send("POST", "/actions", &json!({ "actions": [keyboard] }));
    }

    /// The messages of the console since the last call, with those of the browser itself, such as violations of a
    /// Content-Security-Policy.
    pub(crate) fn console(&self) -> Vec<String> {
        let entries = self.send("POST", "/se/log", &json!({ "type": "browser" }));
        let entry = |entry: &Value| format!("{} {}", text(&entry["level"]), text(&entry["message"]));
        entries.as_array().unwrap().iter().map(entry).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.try_send("DELETE", "", &Value::Null);
        // The browser is in the group of the driver.
        let group = rustix::process::Pid::from_child(&self.driver);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.driver.wait();
    }
}

/// Reads the port from the output of the driver, which is then discarded.
fn read_port(driver: &mut Child) -> u16 {
    let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines().map_while(Result::ok);
    let port = lines.find_map(|line| {
        let port = line.strip_prefix("ChromeDriver was started successfully on port ")?;
        port.trim_end_matches('.').parse().ok()
    });
    std::thread::spawn(move || lines.for_each(drop));
    port.expect("chromedriver prints its port")
}

/// An element of the page.
#[derive(Debug)]
pub(crate) struct Element<'a> {
    browser: &'a Browser,
    path: String,
    /// The XPath that it was found by.
    selector: Option<String>,
}

impl<'a> Element<'a> {
    fn new(browser: &'a Browser, id: &Value) -> Self {
        Element { browser, path: format!("/element/{}", text(&id[ELEMENT])), selector: None }
    }

    fn is_displayed(&self) -> bool {
        // An element that was removed meanwhile is an error.
        self.browser.try_send("GET", &format!("{}/displayed", self.path), &Value::Null) == Ok(json!(true))
    }

    fn read(&self, part: &str) -> String {
        text(&self.browser.get(&format!("{}/{part}", self.path)))
    }

    /// Clicks on the element. If the page has replaced it since it was found, on the one that is there now.
    pub(crate) fn click(&self) {
        match (self.browser.try_send("POST", &format!("{}/click", self.path), &json!({})), &self.selector) {
            (Ok(_), _) => {}
            (Err(error), Some(selector)) if error["error"] == "stale element reference" => {
                self.browser.find(selector).click();
            }
            (Err(error), _) => panic!("click on {:?}: {error}", self.selector),
        }
    }

    /// Types into the element.
    pub(crate) fn enter(&self, keys: &str) {
        self.browser.send("POST", &format!("{}/value", self.path), &json!({ "text": keys }));
    }

    /// The displayed text.
    pub(crate) fn text(&self) -> String {
        self.read("text")
    }

    /// The role and the label that a screen reader receives.
    pub(crate) fn role_and_label(&self) -> (String, String) {
        (self.read("computedrole"), self.read("computedlabel"))
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is not a string")).to_owned()
}
