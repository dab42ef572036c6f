//! Newline-delimited JSON read from a pipe or a socket, with a deadline and a memory of what was heard.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::os::fd::AsFd;

use serde_json::Value;

use super::deadline::Deadline;

/// How many lines the report of a failure shows, and how much of each.
const REMEMBERED: usize = 30;
const SHOWN: usize = 300;

/// Splits a byte stream at newlines.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    source: R,
    buffer: Vec<u8>,
    /// How much of `buffer` is known to hold no newline, so that a long line is scanned once.
    scanned: usize,
    heard: VecDeque<String>,
}

impl<R: Read + AsFd> Lines<R> {
    /// Reads lines from `source`.
    pub(crate) fn new(source: R) -> Self {
        Lines { source, buffer: Vec::new(), scanned: 0, heard: VecDeque::new() }
    }

    /// The stream that is read from.
    pub(crate) fn source(&self) -> &R {
        &self.source
    }

    /// The next line without its newline; `None` at the end of the stream (a torn last line is an error).
    pub(crate) fn next_line(&mut self, deadline: Deadline) -> io::Result<Option<Vec<u8>>> {
        let mut chunk = [0; 64 * 1024];
        loop {
            if let Some(at) = self.buffer[self.scanned..].iter().position(|&byte| byte == b'\n') {
                let rest = self.buffer.split_off(self.scanned + at + 1);
                let mut line = std::mem::replace(&mut self.buffer, rest);
                line.pop();
                self.scanned = 0;
                self.remember(&line);
                return Ok(Some(line));
            }
            self.scanned = self.buffer.len();
            deadline.readable(&self.source)?;
            match self.source.read(&mut chunk)? {
                0 if self.buffer.is_empty() => return Ok(None),
                0 => {
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the last line has no newline"));
                }
                count => self.buffer.extend_from_slice(&chunk[..count]),
            }
        }
    }

    /// The next line as JSON; panics, with what was heard before, when there is none in time.
    pub(crate) fn next_json(&mut self, deadline: Deadline) -> Value {
        let line = match self.next_line(deadline) {
            Ok(Some(line)) => line,
            Ok(None) => panic!("the stream ended instead of a line\n{}", self.report()),
            Err(error) => panic!("no line came: {error}\n{}", self.report()),
        };
        serde_json::from_slice(&line)
            .unwrap_or_else(|error| panic!("a line is not JSON: {error}\n{}", self.report()))
    }

    /// All lines up to and with the first that `last` accepts; panics as [`Lines::next_json`] does.
    pub(crate) fn until(&mut self, deadline: Deadline, last: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut lines = Vec::new();
        loop {
            lines.push(self.next_json(deadline));
            if lines.last().is_some_and(&last) {
                return lines;
            }
        }
    }

    /// The last lines, shortened, for the message of a failure.
    pub(crate) fn report(&self) -> String {
        let heard: Vec<&str> = self.heard.iter().map(String::as_str).collect();
        format!("heard last:\n  {}", heard.join("\n  "))
    }

    fn remember(&mut self, line: &[u8]) {
        if self.heard.len() == REMEMBERED {
            self.heard.pop_front();
        }
        let shown = &line[..line.len().min(SHOWN)];
        self.heard.push_back(String::from_utf8_lossy(shown).into_owned());
    }
}
