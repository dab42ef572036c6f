//! The demo agent's memory: the prompts of a conversation, in one file.

use std::fs;
use std::path::{Path, PathBuf};

/// The prompts of one conversation so far.
#[derive(Debug)]
pub(super) struct Transcript {
    /// The file that stores them; `None` without a home directory.
    file: Option<PathBuf>,
    session: String,
    prompts: Vec<String>,
}

impl Transcript {
    /// Starts a new conversation.
    pub(super) fn new(home: Option<&Path>, session: &str) -> Self {
        let file = home.map(|home| home.join(".demo").join(file_name(session)));
        Transcript { file, session: session.to_owned(), prompts: Vec::new() }
    }

    /// Loads a conversation, or the one named `origin` that it continues; starts a new one if neither is found.
    pub(super) fn load(home: Option<&Path>, session: &str, origin: Option<&str>) -> Self {
        let new = Transcript::new(home, session);
        let read = |file: &Option<PathBuf>| file.as_ref().and_then(|file| fs::read(file).ok());
        let text =
            read(&new.file).or_else(|| origin.and_then(|origin| read(&Transcript::new(home, origin).file)));
        let prompts = text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        Transcript { prompts, ..new }
    }

    pub(super) fn session(&self) -> &str {
        &self.session
    }

    /// Adds a prompt, and returns the earlier ones. If the file cannot be written, the prompt is not stored.
    pub(super) fn add(&mut self, prompt: &str) -> Vec<String> {
        let earlier = self.prompts.clone();
        self.prompts.push(prompt.to_owned());
        if let (Some(file), Ok(text)) = (&self.file, serde_json::to_vec(&self.prompts)) {
            let new = file.with_extension("new");
            let _ = file.parent().map(fs::create_dir_all);
            let _ = fs::write(&new, text).and_then(|()| fs::rename(&new, file));
        }
        earlier
    }
}

/// A file name for the session id, which is opaque text from the server.
fn file_name(session: &str) -> String {
    let safe = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' => char::from(byte).to_string(),
        other => format!("_{other:02x}"),
    };
    let name: String = session.bytes().take(80).map(safe).collect();
    format!("{name}.json")
}
