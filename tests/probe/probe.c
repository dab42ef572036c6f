/*
 * The probe: tries what a sandboxed program must not be able to do, and says what the kernel answered.
 *
 * Each argument is the name of an attempt. Each attempt runs in a child of its own, since some answers kill,
 * and gives one line: "NAME ok", "NAME E…" or "NAME SIG…". Nothing here does harm where it succeeds: arguments
 * are such that an open door answers "ok" or another error than a closed one.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/bpf.h>
#include <linux/fs.h>
#include <linux/keyctl.h>
#include <linux/netlink.h>
#include <linux/perf_event.h>
#include <linux/sched.h>
#include <linux/userfaultfd.h>
#include <linux/vm_sockets.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif
#define SYS_open_tree_ 428
#define SYS_move_mount_ 429
#define SYS_fsopen_ 430
#define SYS_fspick_ 433
#define SYS_pidfd_getfd_ 438
#define SYS_openat2_ 437
#define SYS_mount_setattr_ 442
#define SYS_fchmodat2_ 452
#define SYS_io_uring_setup_ 425

/* What is tried: 0 or more is "ok", less is the answer in errno. */
typedef long attempt(void);

/* A file of one's own in the working directory, made afresh. */
static int own_file(const char *name)
{
	unlink(name);
	return open(name, O_CREAT | O_RDWR | O_EXCL, 0644);
}

/* The mode that a call left on a file counts, not what the call said. */
static long has_set_id(const char *path, long said)
{
	struct stat st;
	int saved = errno;
	if (stat(path, &st) == 0 && st.st_mode & (S_ISUID | S_ISGID))
		return 0;
	errno = said >= 0 ? ENODATA : saved;
	return -1;
}

/* ---- mounts and roots ---- */
static long t_umount_tmp(void) { return umount2("/tmp", 0); }
static long t_umount_proc(void) { return umount2("/proc", MNT_DETACH); }
static long t_umount_masked(void) { return umount2("/proc/kcore", MNT_DETACH); }
static long t_umount_workspace(void) { char cwd[PATH_MAX]; return umount2(getcwd(cwd, sizeof cwd), MNT_DETACH); }
static long t_remount_rw(void) { return mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND, NULL); }
static long t_remount_usr(void) { return mount(NULL, "/usr", NULL, MS_REMOUNT | MS_BIND, NULL); }
static long t_mount_tmpfs(void) { return mount("t", "/tmp", "tmpfs", 0, NULL); }
static long t_mount_proc(void) { return mount("p", "/tmp", "proc", 0, NULL); }
static long t_mount_bind(void) { return mount("/usr", "/tmp", NULL, MS_BIND, NULL); }
static long t_mount_shared(void) { return mount(NULL, "/", NULL, MS_SHARED | MS_REC, NULL); }
static long t_open_tree(void) { return syscall(SYS_open_tree_, AT_FDCWD, "/usr", 1); }
static long t_open_tree_plain(void) { return syscall(SYS_open_tree_, AT_FDCWD, "/usr", 0); }
static long t_move_mount(void) { return syscall(SYS_move_mount_, AT_FDCWD, "/tmp", AT_FDCWD, "/run", 0); }
static long t_fsopen(void) { return syscall(SYS_fsopen_, "tmpfs", 0); }
static long t_fspick(void) { return syscall(SYS_fspick_, AT_FDCWD, "/tmp", 0); }
static long t_mount_setattr(void)
{
	struct { uint64_t set, clear, propagation, userns; } attr = { 0, 1 /* rdonly */, 0, 0 };
	return syscall(SYS_mount_setattr_, AT_FDCWD, "/", 0, &attr, sizeof attr);
}
static long t_pivot_root(void) { return syscall(SYS_pivot_root, "/", "/"); }
static long t_chroot(void) { return chroot("/tmp"); }
static long t_chroot_dot(void) { return chroot("."); }

/* ---- namespaces ---- */
static long t_unshare_user(void) { return unshare(CLONE_NEWUSER); }
static long t_unshare_mount(void) { return unshare(CLONE_NEWNS); }
static long t_unshare_net(void) { return unshare(CLONE_NEWNET); }
static long t_unshare_pid(void) { return unshare(CLONE_NEWPID); }
static long t_unshare_time(void) { return unshare(0x80 /* CLONE_NEWTIME */); }
static long t_unshare_files(void) { return unshare(CLONE_FILES); }
static long clone_with(unsigned long flags)
{
	long pid = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
	if (pid == 0)
		_exit(0);
	return pid;
}
static long t_clone_user(void) { return clone_with(CLONE_NEWUSER); }
static long t_clone_user_high(void) { return clone_with(CLONE_NEWUSER | 1UL << 40); }
static long t_clone_net(void) { return clone_with(CLONE_NEWUSER | CLONE_NEWNET); }
static long t_clone3_user(void)
{
	struct clone_args args = { .flags = CLONE_NEWUSER, .exit_signal = SIGCHLD };
	long pid = syscall(SYS_clone3, &args, sizeof args);
	if (pid == 0)
		_exit(0);
	return pid;
}
static long t_setns_init(void)
{
	int fd = open("/proc/1/ns/mnt", O_RDONLY);
	return fd < 0 ? -1 : setns(fd, 0);
}
static long t_setns_own(void)
{
	int fd = open("/proc/self/ns/uts", O_RDONLY);
	return fd < 0 ? -1 : setns(fd, 0);
}

/* ---- pid 1 ---- */
static long can_open(const char *path) { return open(path, O_RDONLY | O_NONBLOCK); }
static long t_init_mem(void) { return can_open("/proc/1/mem"); }
static long t_init_environ(void) { return can_open("/proc/1/environ"); }
static long t_init_maps(void) { return can_open("/proc/1/maps"); }
static long t_init_cmdline(void) { return can_open("/proc/1/cmdline"); }
static long t_init_fd(void) { return can_open("/proc/1/fd"); }
static long t_init_root(void) { return can_open("/proc/1/root"); }
static long t_init_cwd(void) { return can_open("/proc/1/cwd/."); }
static long t_init_exe(void) { return can_open("/proc/1/exe"); }
static long t_init_map_files(void) { return can_open("/proc/1/map_files"); }
static long t_init_task_fd(void) { return can_open("/proc/1/task/1/fd"); }
static long t_init_attach(void) { return ptrace(PTRACE_ATTACH, 1, 0, 0); }
static long t_init_seize(void) { return ptrace(PTRACE_SEIZE, 1, 0, 0); }
static long t_init_vm_readv(void)
{
	char byte;
	struct iovec to = { &byte, 1 }, from = { &byte, 1 };
	return process_vm_readv(1, &to, 1, &from, 1, 0);
}
static long t_init_pidfd_getfd(void)
{
	long pidfd = syscall(SYS_pidfd_open, 1, 0);
	return pidfd < 0 ? -1 : syscall(SYS_pidfd_getfd_, pidfd, 3, 0);
}
static long t_init_prlimit(void)
{
	struct rlimit64 now;
	return syscall(SYS_prlimit64, 1, RLIMIT_NOFILE, NULL, &now);
}
static long t_init_setpriority(void) { return setpriority(PRIO_PROCESS, 1, 19); }
static long t_user_setpriority(void) { return setpriority(PRIO_USER, 0, 19); }
static long t_init_affinity(void)
{
	cpu_set_t all;
	memset(&all, 0xff, sizeof all);
	return sched_setaffinity(1, sizeof all, &all);
}
static long t_init_scheduler(void)
{
	struct sched_param none = { 0 };
	return sched_setscheduler(1, SCHED_IDLE, &none);
}
static long t_init_ioprio(void) { return syscall(SYS_ioprio_set, 1, 1, 3 << 13); }
static long t_init_getpgid(void) { return getpgid(1) < 0 ? -1 : 0; }
/* Signals to pid 1 "succeed"; whether it lives is for the caller to see. */
static long t_init_kill(void)
{
	for (int signal = 1; signal <= 64; signal++)
		kill(1, signal);
	return 0;
}

/* ---- the caller's privileges ---- */
static long t_chmod(void) { close(own_file("f")); return has_set_id("f", chmod("f", 04755)); }
static long t_chmod_group(void) { close(own_file("f")); return has_set_id("f", chmod("f", 02755)); }
static long t_fchmod(void) { return has_set_id("f", fchmod(own_file("f"), 06755)); }
static long t_fchmodat(void) { close(own_file("f")); return has_set_id("f", syscall(SYS_fchmodat, AT_FDCWD, "f", 04755)); }
static long t_fchmodat2(void) { close(own_file("f")); return has_set_id("f", syscall(SYS_fchmodat2_, AT_FDCWD, "f", 04755, 0)); }
static long t_chmod_high(void) { close(own_file("f")); return has_set_id("f", syscall(SYS_chmod, "f", 04755UL | 1UL << 32)); }
static long t_open_creat(void) { unlink("f"); return has_set_id("f", syscall(SYS_open, "f", O_CREAT | O_WRONLY, 04755)); }
static long t_openat_creat(void) { unlink("f"); return has_set_id("f", syscall(SYS_openat, AT_FDCWD, "f", O_CREAT | O_WRONLY, 04755)); }
static long t_creat(void) { unlink("f"); return has_set_id("f", syscall(SYS_creat, "f", 04755)); }
static long t_openat2(void)
{
	struct { uint64_t flags, mode, resolve; } how = { O_CREAT | O_WRONLY, 04755, 0 };
	unlink("f");
	return has_set_id("f", syscall(SYS_openat2_, AT_FDCWD, "f", &how, sizeof how));
}
static long t_tmpfile(void)
{
	struct stat st;
	int fd = syscall(SYS_openat, AT_FDCWD, ".", O_TMPFILE | O_RDWR, 04755);
	return fd < 0 ? -1 : fstat(fd, &st) == 0 && st.st_mode & S_ISUID ? 0 : (errno = ENODATA, -1);
}
static long t_mkdir(void) { rmdir("d"); return has_set_id("d", syscall(SYS_mkdir, "d", 02755)); }
static long t_mkdirat(void) { rmdir("d"); return has_set_id("d", syscall(SYS_mkdirat, AT_FDCWD, "d", 02755)); }
static long t_mknod(void) { unlink("f"); return has_set_id("f", syscall(SYS_mknod, "f", S_IFREG | 04755, 0)); }
static long t_mknodat(void) { unlink("f"); return has_set_id("f", syscall(SYS_mknodat, AT_FDCWD, "f", S_IFIFO | 04755, 0)); }
static long t_mknod_device(void) { unlink("n"); return mknod("n", S_IFCHR | 0666, 1 << 8 | 1); }
static long t_mknod_block(void) { unlink("n"); return mknod("n", S_IFBLK | 0666, 254 << 8); }
static long t_chown_root(void) { close(own_file("f")); return chown("f", 0, 0); }
static long t_setuid_root(void) { return setuid(0); }
static long t_setgid_root(void) { return setgid(0); }
static long t_setgroups(void) { gid_t none = 0; return syscall(SYS_setgroups, 1, &none); }
static long t_capset(void)
{
	struct { uint32_t version; int pid; } header = { 0x20080522, 0 };
	struct { uint32_t effective, permitted, inheritable; } all[2] = { { ~0U, ~0U, 0 }, { 0x1ff, 0x1ff, 0 } };
	return syscall(SYS_capset, &header, all);
}
static long t_ambient(void) { return prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 21, 0, 0); }
static long t_new_privs(void) { return prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0); }
static long t_file_caps(void)
{
	uint32_t caps[5] = { 0x02000001, ~0U, 0, 0, 0 };
	close(own_file("f"));
	return syscall(SYS_setxattr, "f", "security.capability", caps, sizeof caps, 0);
}
static long t_rlimit_up(void)
{
	struct rlimit now;
	getrlimit(RLIMIT_MEMLOCK, &now);
	now.rlim_cur = now.rlim_max += 4096;
	return setrlimit(RLIMIT_MEMLOCK, &now);
}
static long t_nice_up(void) { return setpriority(PRIO_PROCESS, 0, -5); }
static long t_sethostname(void) { return sethostname("x", 1); }

/* ---- the kernel's surface ---- */
static long t_io_uring(void) { char params[120] = { 0 }; return syscall(SYS_io_uring_setup_, 1, params); }
static long t_bpf(void) { union bpf_attr attr = { 0 }; return syscall(SYS_bpf, BPF_MAP_CREATE, &attr, sizeof attr); }
static long t_userfaultfd(void) { return syscall(SYS_userfaultfd, 1 /* UFFD_USER_MODE_ONLY */); }
static long t_perf(void)
{
	struct perf_event_attr attr = { .type = PERF_TYPE_SOFTWARE, .size = sizeof attr, .exclude_kernel = 1 };
	return syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
}
static long t_keyctl(void) { return syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_USER_KEYRING, 0); }
static long t_keyctl_session(void) { return syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 0); }
static long t_add_key(void) { return syscall(SYS_add_key, "user", "saggar-probe", "x", 1, KEY_SPEC_PROCESS_KEYRING); }
static long t_request_key(void) { return syscall(SYS_request_key, "user", "saggar-walls", NULL, 0); }
static long t_kexec(void) { return syscall(SYS_kexec_load, 0, 0, NULL, ~0UL); }
static long t_init_module(void) { return syscall(SYS_init_module, NULL, 0, ""); }
static long t_finit_module(void) { return syscall(SYS_finit_module, -1, "", 0); }
static long t_delete_module(void) { return syscall(SYS_delete_module, "saggar_none", O_NONBLOCK); }
static long t_name_to_handle(void)
{
	struct { unsigned bytes; int type; char data[128]; } handle = { .bytes = 128 };
	int mount_id;
	return syscall(SYS_name_to_handle_at, AT_FDCWD, "/usr", &handle, &mount_id, 0);
}
static long t_open_by_handle(void)
{
	/* The root of ext4 and of most others is inode 2. */
	struct { unsigned bytes; int type; unsigned ino, generation; } handle = { 8, 1, 2, 0 };
	return syscall(SYS_open_by_handle_at, AT_FDCWD, &handle, O_RDONLY);
}
static long t_personality(void) { return personality(READ_IMPLIES_EXEC); }
static long t_personality_layout(void) { return personality(ADDR_NO_RANDOMIZE); }
static long t_modify_ldt(void) { char ldt[64]; return syscall(SYS_modify_ldt, 0, ldt, sizeof ldt); }
static long t_kcmp(void) { return syscall(SYS_kcmp, getpid(), getpid(), 0, 0, 0); }
static long t_reboot(void) { return syscall(SYS_reboot, 0, 0, 0, NULL); }
static long t_swapon(void) { return syscall(SYS_swapon, "/nonexistent", 0); }
static long t_acct(void) { return syscall(SYS_acct, "/nonexistent"); }
static long t_quotactl(void) { return syscall(SYS_quotactl, 0, NULL, 0, NULL); }
static long t_syslog(void) { char line[64]; return syscall(SYS_syslog, 3, line, sizeof line); }
static long t_settime(void) { struct timespec t = { -1, -1 }; return syscall(SYS_clock_settime, 0, &t); }
static long t_fanotify(void) { return syscall(SYS_fanotify_init, 0x200 /* FAN_REPORT_FID */, 0); }
static long t_mbind(void) { return syscall(SYS_mbind, 0, 0, 0, NULL, 0, 0); }
static long t_iopl(void) { return syscall(SYS_iopl, 3); }
static long t_seccomp_listener(void)
{
	struct { unsigned short code; unsigned char jt, jf; unsigned k; } allow = { 6, 0, 0, 0x7fff0000 };
	struct { unsigned short len; void *filter; } program = { 1, &allow };
	return syscall(SYS_seccomp, 1, 1 << 3, &program);
}
static long t_set_mm(void) { return prctl(PR_SET_MM, PR_SET_MM_START_BRK, 0, 0, 0); }
#ifdef __x86_64__
static long int80(long number, long a, long b, long c)
{
	long answer;
	__asm__ volatile("int $0x80" : "=a"(answer) : "0"(number), "b"(a), "c"(b), "d"(c) : "memory", "r8", "r9", "r10", "r11");
	return answer < 0 ? (errno = -answer, -1) : answer;
}
static long t_i386_getpid(void) { return int80(20, 0, 0, 0); }
static long t_i386_socketcall(void)
{
	int *args = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	args[0] = AF_UNIX, args[1] = SOCK_STREAM, args[2] = 0;
	return int80(102, 1, (long)args, 0);
}
static long t_i386_unshare(void) { return int80(310, CLONE_NEWUSER, 0, 0); }
static long t_x32_getpid(void) { return syscall(0x40000000 | SYS_getpid); }
static long t_x32_ptrace(void) { return syscall(0x40000000 | 521, 0, 0, 0, 0); }
#endif

/* ---- terminals ---- */
static int own_terminal(void)
{
	int master, slave;
	if (openpty(&master, &slave, NULL, NULL, NULL) < 0)
		return -1;
	setsid();
	ioctl(slave, TIOCSCTTY, 0);
	return slave;
}
static long t_tiocsti(void) { int tty = own_terminal(); return tty < 0 ? -1 : ioctl(tty, TIOCSTI, "x"); }
static long t_tiocsti_high(void) { int tty = own_terminal(); return tty < 0 ? -1 : syscall(SYS_ioctl, tty, TIOCSTI | 1UL << 32, "x"); }
static long t_tioclinux(void) { int tty = own_terminal(); char c = 3; return tty < 0 ? -1 : ioctl(tty, TIOCLINUX, &c); }
static long t_tioclinux_high(void) { int tty = own_terminal(); char c = 3; return tty < 0 ? -1 : syscall(SYS_ioctl, tty, TIOCLINUX | 1UL << 32, &c); }
static long t_tiocsetd(void) { int tty = own_terminal(), d = 0; return tty < 0 ? -1 : ioctl(tty, TIOCSETD, &d); }
static long t_own_terminal(void) { int tty = own_terminal(); return tty < 0 ? -1 : isatty(tty) ? 0 : -1; }

/* ---- sockets ---- */
static long t_vsock(void) { return socket(AF_VSOCK, SOCK_STREAM, 0); }
static long t_packet(void) { return socket(AF_PACKET, SOCK_RAW, 0); }
static long t_packet_dgram(void) { return socket(AF_PACKET, SOCK_DGRAM, 0); }
static long t_raw(void) { return socket(AF_INET, SOCK_RAW, IPPROTO_ICMP); }
static long t_ping(void) { return socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP); }
static long t_mptcp(void) { return socket(AF_INET, SOCK_STREAM, IPPROTO_MPTCP); }
static long t_mptcp6(void) { return socket(AF_INET6, SOCK_STREAM, IPPROTO_MPTCP); }
static long t_sctp(void) { return socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP); }
static long t_alg(void) { return socket(AF_ALG, SOCK_SEQPACKET, 0); }
static long t_bluetooth(void) { return socket(AF_BLUETOOTH, SOCK_RAW, 1); }
static long t_xdp(void) { return socket(AF_XDP, SOCK_RAW, 0); }
static long t_key(void) { return socket(AF_KEY, SOCK_RAW, 2); }
static long t_tipc(void) { return socket(AF_TIPC, SOCK_STREAM, 0); }
static long t_netlink_route(void) { return socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE); }
static long t_netlink_netfilter(void) { return socket(AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER); }
static long t_netlink_generic(void) { return socket(AF_NETLINK, SOCK_RAW, NETLINK_GENERIC); }
static long t_netlink_uevent(void) { return socket(AF_NETLINK, SOCK_RAW, NETLINK_KOBJECT_UEVENT); }
static long t_netlink_audit(void) { return socket(AF_NETLINK, SOCK_RAW, NETLINK_AUDIT); }
static long t_netlink_diag(void) { return socket(AF_NETLINK, SOCK_RAW, NETLINK_SOCK_DIAG); }
static long t_netlink_xfrm(void) { return socket(AF_NETLINK, SOCK_RAW, NETLINK_XFRM); }
static long t_unix(void) { return socket(AF_UNIX, SOCK_STREAM, 0); }
static long t_tcp(void) { return socket(AF_INET, SOCK_STREAM, 0); }
static long t_udp(void) { return socket(AF_INET6, SOCK_DGRAM, 0); }
static long t_ulp(void) { return setsockopt(socket(AF_INET, SOCK_STREAM, 0), IPPROTO_TCP, 31, "tls", 3); }
static long t_interface_up(void)
{
	struct ifreq request = { 0 };
	strcpy(request.ifr_name, "lo");
	return ioctl(socket(AF_INET, SOCK_DGRAM, 0), 0x8914 /* SIOCSIFFLAGS */, &request);
}

static const struct { const char *name; attempt *run; } attempts[] = {
#define T(name) { #name, t_##name }
	T(umount_tmp), T(umount_proc), T(umount_masked), T(umount_workspace), T(remount_rw), T(remount_usr),
	T(mount_tmpfs), T(mount_proc), T(mount_bind), T(mount_shared), T(open_tree), T(open_tree_plain),
	T(move_mount), T(fsopen), T(fspick), T(mount_setattr), T(pivot_root), T(chroot), T(chroot_dot),
	T(unshare_user), T(unshare_mount), T(unshare_net), T(unshare_pid), T(unshare_time), T(unshare_files),
	T(clone_user), T(clone_user_high), T(clone_net), T(clone3_user), T(setns_init), T(setns_own),
	T(init_mem), T(init_environ), T(init_maps), T(init_cmdline), T(init_fd), T(init_root), T(init_cwd),
	T(init_exe), T(init_map_files), T(init_task_fd), T(init_attach), T(init_seize), T(init_vm_readv),
	T(init_pidfd_getfd), T(init_prlimit), T(init_setpriority), T(user_setpriority), T(init_affinity),
	T(init_scheduler), T(init_ioprio), T(init_getpgid), T(init_kill),
	T(chmod), T(chmod_group), T(fchmod), T(fchmodat), T(fchmodat2), T(chmod_high), T(open_creat),
	T(openat_creat), T(creat), T(openat2), T(tmpfile), T(mkdir), T(mkdirat), T(mknod), T(mknodat),
	T(mknod_device), T(mknod_block), T(chown_root), T(setuid_root), T(setgid_root), T(setgroups), T(capset),
	T(ambient), T(new_privs), T(file_caps), T(rlimit_up), T(nice_up), T(sethostname),
	T(io_uring), T(bpf), T(userfaultfd), T(perf), T(keyctl), T(keyctl_session), T(add_key), T(request_key),
	T(kexec), T(init_module), T(finit_module), T(delete_module), T(name_to_handle), T(open_by_handle),
	T(personality), T(personality_layout), T(modify_ldt), T(kcmp), T(reboot), T(swapon), T(acct),
	T(quotactl), T(syslog), T(settime), T(fanotify), T(mbind), T(iopl), T(seccomp_listener), T(set_mm),
#ifdef __x86_64__
	T(i386_getpid), T(i386_socketcall), T(i386_unshare), T(x32_getpid), T(x32_ptrace),
#endif
	T(tiocsti), T(tiocsti_high), T(tioclinux), T(tioclinux_high), T(tiocsetd), T(own_terminal),
	T(vsock), T(packet), T(packet_dgram), T(raw), T(ping), T(mptcp), T(mptcp6), T(sctp), T(alg), T(bluetooth),
	T(xdp), T(key), T(tipc), T(netlink_route), T(netlink_netfilter), T(netlink_generic), T(netlink_uevent),
	T(netlink_audit), T(netlink_diag), T(netlink_xfrm), T(unix), T(tcp), T(udp), T(ulp), T(interface_up),
#undef T
};

/* The answer of an attempt is its child's exit status: 0, or the error number. */
static int run_in_child(attempt *run)
{
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		errno = 0;
		_exit(run() >= 0 ? 0 : errno ? errno : 255);
	}
	int status;
	while (waitpid(pid, &status, 0) < 0)
		;
	return status;
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		attempt *run = NULL;
		for (size_t n = 0; n < sizeof attempts / sizeof *attempts; n++)
			if (strcmp(attempts[n].name, argv[i]) == 0)
				run = attempts[n].run;
		if (!run) {
			fprintf(stderr, "no attempt is called %s\n", argv[i]);
			return 2;
		}
		int status = run_in_child(run);
		if (WIFSIGNALED(status))
			printf("%s SIG%s\n", argv[i], sigabbrev_np(WTERMSIG(status)));
		else if (WEXITSTATUS(status) == 0)
			printf("%s ok\n", argv[i]);
		else
			printf("%s %s\n", argv[i], strerrorname_np(WEXITSTATUS(status)));
	}
	return 0;
}
