//! Start code of a statically linked program, in place of glibc's. It takes the same steps in the same order
//! (csu/libc-start.c, sysdeps/x86/libc-start.h), except that it does not query the processor's features.
//!
//! glibc executes CPUID about 70 times, to choose string functions for this processor and to learn its cache sizes. In
//! a virtual machine each CPUID exits to the hypervisor: together two thirds of a millisecond, a seventh of a whole
//! sandbox start. Without CPUID, glibc uses the functions that every x86-64 processor supports (SSE2), and this file
//! sets the cache sizes that glibc has as initial values.
//!
//! The symbols used here are internal to glibc, and their meaning may change between versions. The build script
//! therefore enables this file (`saggar_libc_start`) only if the libc archive is of a version that was tested with it.
//! `packaging/static_link.rs` lists those versions; any other version keeps its own start code. It is part of the
//! binary only, since tests link the library with the shared libc.
//!
//! It runs before the first instruction of the program. Until [`_dl_relocate_static_pie`] no address in memory is
//! valid, so all symbols are reached relative to the instruction pointer; until [`__libc_setup_tls`] there is no errno.

use std::arch::asm;
use std::ffi::{c_char, c_int, c_long, c_void};

type Init = extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char);
type Fini = extern "C" fn();
type Main = extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char) -> c_int;

unsafe extern "C" {
    static mut __environ: *mut *mut c_char;
    static mut __libc_stack_end: *mut c_void;
    static __libc_enable_secure: c_int;
    /// 16 random bytes from the kernel, at any address on the stack.
    static _dl_random: *const [usize; 2];
    static __preinit_array_start: [Init; 0];
    static __preinit_array_end: [Init; 0];
    static __init_array_start: [Init; 0];
    static __init_array_end: [Init; 0];
    static __fini_array_start: [Fini; 0];
    static __fini_array_end: [Fini; 0];

    fn _dl_aux_init(vector: *const c_void);
    fn __tunables_init(environment: *mut *mut c_char);
    fn _dl_relocate_static_pie();
    fn __libc_setup_tls();
    fn __libc_early_init(initial: bool);
    fn __libc_init_first(argc: c_int, argv: *mut *mut c_char, envp: *mut *mut c_char);
    fn __libc_check_standard_fds();
    fn __cxa_atexit(run: extern "C" fn(*mut c_void), with: *mut c_void, object: *mut c_void) -> c_int;
    fn _init();
    fn _fini();
    fn exit(status: c_int) -> !;
}

/// Thresholds of the string functions (sysdeps/x86/cacheinfo.h), with glibc's initial values.
mod sizes {
    use super::{c_int, c_long};

    const KIB: c_long = 1 << 10;

    #[unsafe(no_mangle)]
    static __x86_data_cache_size_half: c_long = 16 * KIB;
    #[unsafe(no_mangle)]
    static __x86_data_cache_size: c_long = 32 * KIB;
    #[unsafe(no_mangle)]
    static __x86_shared_cache_size_half: c_long = 512 * KIB;
    #[unsafe(no_mangle)]
    static __x86_shared_cache_size: c_long = 1024 * KIB;
    /// Three quarters of the shared cache, as glibc computes it.
    #[unsafe(no_mangle)]
    static __x86_shared_non_temporal_threshold: c_long = 768 * KIB;
    #[unsafe(no_mangle)]
    static __x86_rep_movsb_threshold: c_long = 2 * KIB;
    #[unsafe(no_mangle)]
    static __x86_rep_stosb_threshold: c_long = 2 * KIB;
    #[unsafe(no_mangle)]
    static __x86_rep_movsb_stop_threshold: c_long = 768 * KIB;
    #[unsafe(no_mangle)]
    static __x86_string_control: c_int = 0;
}

/// Calls a function relative to the instruction pointer: the table of addresses is not relocated yet.
macro_rules! call_early {
    ($function:path $(, $argument:expr)?) => {
        asm!("call {}", sym $function, $(in("rdi") $argument,)? clobber_abi("C"))
    };
}

/// Stores a value relative to the instruction pointer.
macro_rules! store_early {
    ($place:path, $value:expr) => {
        asm!("mov [rip + {}], {}", sym $place, in(reg) $value, options(nostack, preserves_flags))
    };
}

/// The function that `_start` calls. `init` and `fini` are used by programs that were linked with a glibc before 2.34.
///
/// # Safety
/// Only `_start` may call it.
#[unsafe(no_mangle)]
unsafe extern "C" fn __libc_start_main(
    main: Main,
    argc: c_int,
    argv: *mut *mut c_char,
    _init_of_old: *const c_void,
    _fini_of_old: *const c_void,
    rtld_fini: Option<extern "C" fn(*mut c_void)>,
    stack_end: *mut c_void,
) -> ! {
    // SAFETY: the kernel lays out a new program's stack like this (execve(2), getauxval(3)): `argv` ends in a null
    // pointer, the environment follows and ends in one, and the auxiliary vector follows that. The functions are called
    // in the order in which glibc calls them, each of them once; there is one thread.
    #[allow(clippy::multiple_unsafe_ops_per_block)]
    unsafe {
        let envp = argv.offset(argc as isize + 1);
        let mut vector = envp;
        while !(*vector).is_null() {
            vector = vector.add(1);
        }
        store_early!(__environ, envp);
        store_early!(__libc_stack_end, stack_end);
        call_early!(_dl_aux_init, vector.add(1));
        call_early!(__tunables_init, envp);
        // At this point glibc executes CPUID. The relocation also chooses the string functions.
        call_early!(_dl_relocate_static_pie);
        call_early!(__libc_setup_tls);
        let [canary, guard] = _dl_random.read_unaligned();
        // The first byte of the canary is zero, so that no string function can write it.
        asm!("mov fs:[0x28], {}", in(reg) canary & !0xff, options(nostack, preserves_flags));
        asm!("mov fs:[0x30], {}", in(reg) guard, options(nostack, preserves_flags));
        let none = std::ptr::null_mut();
        if let Some(rtld_fini) = rtld_fini {
            __cxa_atexit(rtld_fini, none, none);
        }
        __libc_early_init(true);
        __libc_init_first(argc, argv, envp);
        __cxa_atexit(finish, none, none);
        if __libc_enable_secure != 0 {
            __libc_check_standard_fds();
        }
        let before = between(&raw const __preinit_array_start, &raw const __preinit_array_end);
        before.iter().for_each(|run| run(argc, argv, envp));
        _init();
        let constructors = between(&raw const __init_array_start, &raw const __init_array_end);
        constructors.iter().for_each(|run| run(argc, argv, envp));
        exit(main(argc, argv, envp))
    }
}

extern "C" fn finish(_: *mut c_void) {
    // SAFETY: exit(3) calls this function once.
    #[allow(clippy::multiple_unsafe_ops_per_block)]
    unsafe {
        let destructors = between(&raw const __fini_array_start, &raw const __fini_array_end);
        destructors.iter().rev().for_each(|run| run());
        _fini();
    }
}

/// The elements between the linker's start and end symbols of an array.
///
/// # Safety
/// `start` and `end` must be the linker's symbols of one array.
unsafe fn between<T>(start: *const [T; 0], end: *const [T; 0]) -> &'static [T] {
    let len = (end.addr() - start.addr()) / size_of::<T>();
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(start.cast(), len) }
}
