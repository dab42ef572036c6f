//! One message as one line of JSON (seed 001, "Storage Format").
//!
//! Writing is strict: all eight fields, in the order of the seed. Reading is lenient, because other programs append to
//! the same file and the examples of the seed leave fields out.

use super::{MAX_CONTENT, Message, MessageType, Signal, message_id};
use crate::error::{Error, ErrorKind, Result};
use jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};

/// Longest line that is parsed, in bytes: content of which each byte is escaped as `\u0000`, and the other fields.
pub(crate) const MAX_LINE: usize = 6 * MAX_CONTENT + (64 << 10);

#[derive(Serialize)]
struct WrittenLine<'a> {
    id: &'a str,
    run_id: u64,
    #[serde(rename = "type")]
    message_type: MessageType,
    from: &'a str,
    to: &'a str,
    content: &'a str,
    signal: &'a str,
    timestamp: String,
}

/// Every field that another program may leave out or set to null is optional.
#[derive(Deserialize)]
struct ReadLine {
    id: Option<String>,
    run_id: Option<u64>,
    #[serde(rename = "type")]
    message_type: MessageType,
    from: String,
    to: Option<String>,
    content: Option<String>,
    signal: Option<String>,
    timestamp: String,
}

impl Serialize for Message {
    /// The object of its line.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let line = WrittenLine {
            id: &self.id,
            run_id: self.run_id,
            message_type: self.message_type,
            from: &self.from,
            to: &self.to,
            content: &self.content,
            signal: self.signal.map_or("", Signal::as_str),
            timestamp: format_time(self.timestamp),
        };
        line.serialize(serializer)
    }
}

/// A time on the wire: RFC 3339, in UTC, with whole seconds (AM-08).
pub(crate) fn format_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

impl Message {
    /// The message as a line of JSON with its newline.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the message has no JSON form, which no valid message causes.
    pub fn to_line(&self) -> Result<Vec<u8>> {
        let mut bytes = serde_json::to_vec(self).map_err(|cause| {
            Error::new(ErrorKind::Invalid, format!("cannot write message {} as JSON: {cause}", self.id))
        })?;
        bytes.push(b'\n');
        Ok(bytes)
    }
}

/// Reads a line without its newline. A message without a run number belongs to `run_id`; a message without an id gets
/// the id of its content; an id that is present is kept and not verified.
///
/// # Errors
/// The cause as text: the line is not an object, or a field has a value that is not allowed.
pub(crate) fn parse_line(line: &[u8], run_id: u64) -> Result<Message, String> {
    // Serde accepts an array in place of a struct.
    if line.trim_ascii_start().first() != Some(&b'{') {
        return Err("the line is not a JSON object".to_owned());
    }
    let read: ReadLine = serde_json::from_slice(line).map_err(|cause| cause.to_string())?;
    let signal = match read.signal.as_deref() {
        None | Some("") => None,
        Some(name) => Some(Signal::from_name(name).ok_or_else(|| format!("unknown signal {name:?}"))?),
    };
    let timestamp: Timestamp =
        read.timestamp.parse().map_err(|cause| format!("timestamp {:?}: {cause}", read.timestamp))?;
    let (to, content) = (read.to.unwrap_or_default(), read.content.unwrap_or_default());
    let id = read
        .id
        .filter(|id| !id.is_empty())
        .unwrap_or_else(|| message_id(read.message_type, &read.from, &to, &content));
    Ok(Message {
        id,
        run_id: read.run_id.unwrap_or(run_id),
        message_type: read.message_type,
        from: read.from,
        to,
        content,
        signal,
        timestamp,
    })
}
