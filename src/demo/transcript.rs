//! The demo agent's memory: the prompts of a conversation, in a file of its own.

use std::fs;
use std::path::PathBuf;

/// The prompts of one conversation, so far.
#[derive(Debug)]
pub(super) struct Transcript {
    session: String,
    prompts: Vec<String>,
}

impl Transcript {
    /// A conversation that begins.
    pub(super) fn new(session: &str) -> Self {
        Transcript { session: session.to_owned(), prompts: Vec::new() }
    }

    /// A conversation that goes on; as new when nothing of it is found.
    pub(super) fn load(session: &str) -> Self {
        let text = path(session).and_then(|path| fs::read(path).ok());
        let prompts = text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        Transcript { session: session.to_owned(), prompts }
    }

    pub(super) fn session(&self) -> &str {
        &self.session
    }

    /// Adds a prompt, and gives the earlier ones. A home that cannot be written forgets.
    pub(super) fn add(&mut self, prompt: &str) -> Vec<String> {
        let earlier = self.prompts.clone();
        self.prompts.push(prompt.to_owned());
        if let (Some(path), Ok(text)) = (path(&self.session), serde_json::to_vec(&self.prompts)) {
            let new = path.with_extension("new");
            let _ = path.parent().map(fs::create_dir_all);
            let _ = fs::write(&new, text).and_then(|()| fs::rename(&new, &path));
        }
        earlier
    }
}

/// Where the conversation is kept. The session is the server's opaque text: its bytes become a safe name.
fn path(session: &str) -> Option<PathBuf> {
    let home = PathBuf::from(std::env::var_os("HOME")?);
    let safe = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' => char::from(byte).to_string(),
        other => format!("_{other:02x}"),
    };
    let name: String = session.bytes().take(80).map(safe).collect();
    Some(home.join(".demo").join(format!("{name}.json")))
}
