//! The block: working directory, candidates, arguments and environment of a program in one sealed memory
//! file. The supervisor writes it after the clone, so that pid 1 has no copy of it; the child of pid 1 maps it and
//! makes the pointer lists of execve without a heap. Where that child has pid 1's own memory, pid 1 stands still
//! meanwhile, and gives the pages back first of all ([`MappedPages`]).
//!
//! Layout: two native u32 (strings of the list, variables), then NUL-terminated strings: the working directory, the
//! list, the variables as `NAME=value`. The list is what `trampoline/main.rs` is executed with: the paths to try in
//! turn, an empty string, the arguments.

use crate::spec::ProgramSpec;
use crate::stage::call;
use crate::stage::program_path;
use saggar_sys::{Errno, SysResult};
use std::ffi::{CStr, OsStr, c_char};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;

const HEADER: usize = 8;

/// Writes a program down. `search` is the PATH inside, where a name without a slash is looked for.
///
/// # Errors
/// EINVAL when a string holds a NUL byte or there is no program; E2BIG when there is too much of it.
pub fn encode(program: &ProgramSpec, search: &OsStr) -> SysResult<Vec<u8>> {
    let name = program.argv.first().ok_or(Errno::EINVAL)?.as_bytes();
    let candidates = program_path::candidates(program, name, search);
    let count = |n: usize| u32::try_from(n).map(u32::to_ne_bytes).map_err(|_| Errno::E2BIG);
    let mut bytes = Vec::with_capacity(4096);
    bytes.extend(count(candidates.len() + 1 + program.argv.len())?);
    bytes.extend(count(program.env.len())?);
    let mut string = |parts: &[&[u8]]| {
        if parts.iter().any(|part| part.contains(&0)) {
            return Err(Errno::EINVAL);
        }
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        bytes.push(0);
        Ok(())
    };
    string(&[program.cwd.as_os_str().as_bytes()])?;
    candidates.iter().try_for_each(|path| string(&[path]))?;
    string(&[])?;
    program.argv.iter().try_for_each(|arg| string(&[arg.as_bytes()]))?;
    program.env.iter().try_for_each(|(name, value)| string(&[name.as_bytes(), b"=", value.as_bytes()]))?;
    Ok(bytes)
}

/// A block, mapped until this process executes a program or ends.
#[derive(Debug)]
pub struct MappedProgramArgs {
    /// The working directory.
    pub cwd: &'static CStr,
    /// The list for the trampoline: null-terminated.
    pub argv: *const *const c_char,
    /// For execve: null-terminated.
    pub envp: *const *const c_char,
}

/// The pages of a block, for a process that lent its memory to the one that mapped them: it goes on with the
/// arguments and the environment of a program in its memory, and is to give them back at once.
#[derive(Debug, Default)]
pub struct MappedPages([Option<(usize, usize)>; 2]);

impl MappedPages {
    /// Unmaps them.
    ///
    /// # Safety
    /// Nobody uses the [`MappedProgramArgs`] block any more.
    pub(crate) unsafe fn unmap(&mut self) {
        for (address, len) in self.0.iter_mut().filter_map(Option::take) {
            let _ = call!(libc::SYS_munmap, address, len);
        }
    }
}

/// Maps a block and lays out its pointers, in anonymous memory: no heap. `pages` are what is mapped.
///
/// # Errors
/// EINVAL when it is not a whole block; ENOMEM.
pub fn map(file: BorrowedFd<'_>, pages: &mut MappedPages) -> SysResult<MappedProgramArgs> {
    let size = nix::sys::stat::fstat(file)?.st_size;
    let size = usize::try_from(size).map_err(|_| Errno::EINVAL)?;
    if size <= HEADER {
        return Err(Errno::EINVAL);
    }
    let bytes = map_pages(size, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd())?;
    pages.0[0] = Some((bytes.expose_provenance(), size));
    // SAFETY: the kernel mapped `size` readable bytes there, which stay until exit or execve; the file is
    // sealed, so they do not change.
    let bytes: &'static [u8] = unsafe { std::slice::from_raw_parts(bytes.cast_const(), size) };
    if bytes.last() != Some(&0) {
        return Err(Errno::EINVAL);
    }
    let word = |at: usize| -> SysResult<usize> {
        let word: [u8; 4] = bytes[at..at + 4].try_into().map_err(|_| Errno::EINVAL)?;
        Ok(u32::from_ne_bytes(word) as usize)
    };
    let (arguments, variables) = (word(0)?, word(4)?);
    let mut strings = bytes[HEADER..].split_inclusive(|b| *b == 0);
    let cwd = strings.next().and_then(|s| CStr::from_bytes_with_nul(s).ok()).ok_or(Errno::EINVAL)?;

    let slots = arguments + variables + 2;
    let size = slots * size_of::<*const c_char>();
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let memory = map_pages(size, protection, flags, -1)?;
    pages.0[1] = Some((memory.expose_provenance(), size));
    // SAFETY: fresh pages, zeroed (so every slot is a null pointer), aligned, of that many slots, ours alone.
    let table: &'static mut [*const c_char] = unsafe { std::slice::from_raw_parts_mut(memory.cast(), slots) };
    let mut fill = |from: usize, count: usize| -> SysResult<()> {
        for slot in &mut table[from..from + count] {
            *slot = strings.next().ok_or(Errno::EINVAL)?.as_ptr().cast();
        }
        Ok(())
    };
    fill(0, arguments)?;
    fill(arguments + 1, variables)?;
    let table: &'static [*const c_char] = table;
    Ok(MappedProgramArgs { cwd, argv: table.as_ptr(), envp: table[arguments + 1..].as_ptr() })
}

fn map_pages(len: usize, protection: i32, flags: i32, fd: i32) -> SysResult<*mut u8> {
    let nowhere = std::ptr::null_mut::<u8>();
    let address = call!(libc::SYS_mmap, nowhere, len, protection, flags, fd, 0usize)?;
    Ok(std::ptr::with_exposed_provenance_mut(usize::try_from(address).map_err(|_| Errno::ENOMEM)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn strings(mut list: *const *const c_char) -> Vec<String> {
        let mut out = Vec::new();
        // SAFETY: the lists of a mapped block are null-terminated lists of C strings.
        #[allow(clippy::multiple_unsafe_ops_per_block)]
        unsafe {
            while !(*list).is_null() {
                out.push(CStr::from_ptr(*list).to_string_lossy().into_owned());
                list = list.add(1);
            }
        }
        out
    }

    #[test]
    fn a_program_survives_the_block() {
        let program = ProgramSpec {
            argv: vec!["ls".into(), String::new().into(), "-l".into()],
            env: vec![("A".into(), "1=2".into())],
            cwd: "/w".into(),
            file: None,
        };
        let bytes = encode(&program, OsStr::new("/bin::rel:/usr/bin")).unwrap();
        let file = saggar_sys::file::sealed_memfd(c"block", &bytes).unwrap();
        let mapped = map(file.as_fd(), &mut MappedPages::default()).unwrap();
        assert_eq!(mapped.cwd, c"/w");
        assert_eq!(strings(mapped.argv), ["/bin/ls", "/usr/bin/ls", "", "ls", "", "-l"]);
        assert_eq!(strings(mapped.envp), ["A=1=2"]);
    }

    #[test]
    fn a_nul_byte_is_refused() {
        let program = ProgramSpec { argv: vec!["a\0b".into()], env: vec![], cwd: "/".into(), file: None };
        assert_eq!(encode(&program, OsStr::new("/bin")), Err(Errno::EINVAL));
    }
}
