//! The start of a statically linked program, in the place of glibc's own: the same steps in the same order
//! (csu/libc-start.c, sysdeps/x86/libc-start.h), but for one. It does not ask the processor what it is.
//!
//! glibc asks some 70 times (CPUID), for functions of strings that are made for this very processor and for the
//! sizes of its caches. In a virtual machine every question ends in the hypervisor: together two thirds of a
//! millisecond, a seventh of a whole start of a sandbox. Unasked, glibc takes the functions that every x86-64 has
//! (SSE2), and here are the sizes that it begins with itself.
//!
//! The names used here are glibc's inner ones, which may change their meaning from version to version. So the
//! build script lets this file in (`saggar_libc_start`) where the archive is of a version that it was tried with,
//! and `packaging/static_link.rs` lists those; any other has the start of its own. It is a part of the binary
//! alone, since the library is linked with the shared libc in tests.
//!
//! Who runs here: the program before its first instruction. Until [`_dl_relocate_static_pie`] no address in memory is
//! right, so that everything is reached from the instruction pointer; until [`__libc_setup_tls`] there is no errno.

use std::arch::asm;
use std::ffi::{c_char, c_int, c_long, c_void};

type Init = extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char);
type Fini = extern "C" fn();
type Main = extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char) -> c_int;

unsafe extern "C" {
    static mut __environ: *mut *mut c_char;
    static mut __libc_stack_end: *mut c_void;
    static __libc_enable_secure: c_int;
    /// 16 random bytes of the kernel's, anywhere on the stack.
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

/// What the functions of strings go by (sysdeps/x86/cacheinfo.h), each with what it has before the questions.
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
    /// Three quarters of the shared cache, as glibc has it.
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

/// Calls by the instruction pointer: the table of addresses is not relocated yet.
macro_rules! call_early {
    ($function:path $(, $argument:expr)?) => {
        asm!("call {}", sym $function, $(in("rdi") $argument,)? clobber_abi("C"))
    };
}

/// Stores by the instruction pointer.
macro_rules! store_early {
    ($place:path, $value:expr) => {
        asm!("mov [rip + {}], {}", sym $place, in(reg) $value, options(nostack, preserves_flags))
    };
}

/// What `_start` calls. `init` and `fini` are of programs that were linked with a glibc before 2.34.
///
/// # Safety
/// For `_start` alone.
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
    // SAFETY: as the kernel lays a new program's stack out (execve(2), getauxval(3)): `argv` ends in a null pointer,
    // the environment follows and ends in one, and the auxiliary vector follows that. The functions are called in
    // the order in which glibc calls them, each of them once; there is one thread.
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
        // Here glibc asks. The relocation also chooses the functions of strings.
        call_early!(_dl_relocate_static_pie);
        call_early!(__libc_setup_tls);
        let [canary, guard] = _dl_random.read_unaligned();
        // The canary's first byte is zero, so that no string writes it.
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
    // SAFETY: called by exit(3), once.
    #[allow(clippy::multiple_unsafe_ops_per_block)]
    unsafe {
        let destructors = between(&raw const __fini_array_start, &raw const __fini_array_end);
        destructors.iter().rev().for_each(|run| run());
        _fini();
    }
}

/// # Safety
/// The linker's marks of one array.
unsafe fn between<T>(start: *const [T; 0], end: *const [T; 0]) -> &'static [T] {
    let len = (end.addr() - start.addr()) / size_of::<T>();
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(start.cast(), len) }
}
