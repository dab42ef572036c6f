//! A program as execve takes it: made by the runtime before the clone, used by the child without a heap.

use std::ffi::{CStr, CString, c_char};

/// The strings of a program, and the pointers to them.
#[derive(Debug)]
pub struct ProgramArgs {
    candidates: Vec<CString>,
    argv: CStringList,
    env: CStringList,
    home: Option<usize>,
}

/// Strings, and a null-terminated list of pointers to them.
#[derive(Debug)]
struct CStringList {
    strings: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl CStringList {
    /// With `spare` empty places before the end.
    fn new(strings: Vec<CString>, spare: usize) -> Self {
        // The pointers are to what each string holds, which stays where it is when the list moves.
        let mut pointers: Vec<_> = strings.iter().map(|string| string.as_ptr()).collect();
        pointers.extend(std::iter::repeat_n(std::ptr::null(), spare + 1));
        CStringList { strings, pointers }
    }
}

impl ProgramArgs {
    /// `candidates` are paths to try in turn. An empty HOME in `env` is none.
    pub fn new(candidates: Vec<CString>, argv: Vec<CString>, env: Vec<CString>) -> Self {
        let env: Vec<CString> = env.into_iter().filter(|variable| variable.as_c_str() != c"HOME=").collect();
        let has_home = env.iter().any(|variable| variable.as_bytes().starts_with(b"HOME="));
        let home = (!has_home).then_some(env.len());
        ProgramArgs { candidates, argv: CStringList::new(argv, 0), env: CStringList::new(env, 1), home }
    }

    /// The program's name, for messages.
    pub fn name(&self) -> String {
        self.argv.strings.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// Paths to try in turn.
    pub(super) fn candidates(&self) -> &[CString] {
        &self.candidates
    }

    /// For execve.
    pub(super) fn argv(&self) -> *const *const c_char {
        self.argv.pointers.as_ptr()
    }

    /// For execve.
    pub(super) fn env(&self) -> *const *const c_char {
        self.env.pointers.as_ptr()
    }

    /// Adds `HOME=…` where there is none. `variable` must stay where it is until execve.
    pub(super) fn set_home(&mut self, variable: &CStr) {
        if let Some(slot) = self.home.and_then(|home| self.env.pointers.get_mut(home)) {
            *slot = variable.as_ptr();
        }
    }
}
