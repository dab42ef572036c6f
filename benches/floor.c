/* The floor of `cargo bench --bench launch`: the bare system calls of a sandbox like that of `saggar wrap`, for
 * root or an ordinary user, and nothing beside them: no policy, no supervisor that watches, no watcher, no cgroup,
 * no owners to map, nothing looked at twice. Not a sandbox to use.
 *
 *     floor PROGRAM        in the working directory, which is the one directory that can be written
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define LEN(array) (sizeof(array) / sizeof *(array))
#define CLOSED (MS_NOSUID | MS_NODEV | MS_NOEXEC)

static long must(long result, const char *what)
{
    if (result < 0) {
        fprintf(stderr, "floor: %s: %s\n", what, strerror(errno));
        _exit(125);
    }
    return result;
}

static void put(pid_t pid, const char *name, const char *text)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    int file = must(open(path, O_WRONLY | O_CLOEXEC), path);
    must(write(file, text, strlen(text)), path);
    close(file);
}

static void touch(const char *path)
{
    close(must(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0444), path));
}

static void show(const char *from, const char *to, unsigned long flags)
{
    must(mount(from, to, NULL, MS_BIND | MS_REC, NULL), from);
    must(mount(NULL, to, NULL, MS_BIND | MS_REMOUNT | flags, NULL), to);
}

static void fresh(const char *kind, const char *at, unsigned long flags, const char *options)
{
    mkdir(at, 0755);
    must(mount(kind, at, kind, flags, options), at);
}

/* Every component of `path`, which begins with a slash, below the working directory. */
static void directories(char *path)
{
    for (char *slash = strchr(path + 1, '/');; slash = strchr(slash + 1, '/')) {
        if (slash)
            *slash = 0;
        mkdir(path + 1, 0755);
        if (!slash)
            return;
        *slash = '/';
    }
}

static void files(char *workspace)
{
    static const char *const links[][2] = {
        {"usr/bin", "bin"}, {"usr/sbin", "sbin"}, {"usr/lib", "lib"}, {"usr/lib64", "lib64"}};
    static const char *const shown[] = {"/etc/alternatives", "/etc/ca-certificates", "/etc/ssl",
                                        "/etc/ld.so.conf.d", "/etc/ld.so.cache", "/etc/ld.so.conf"};
    static const char *const hidden[] = {"proc/keys", "proc/kmsg", "proc/timer_list", "proc/interrupts",
                                         "proc/kallsyms"};
    static const char *const sealed[] = {"proc/acpi", "proc/bus", "proc/fs", "proc/irq", "proc/sys"};
    static const char *const devices[] = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random",
                                          "/dev/urandom", "/dev/tty"};
    const unsigned long nothing = MS_NOSUID | MS_NODEV;

    must(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), "/");
    must(mount("tmpfs", "/mnt", "tmpfs", nothing, "size=4m,mode=0755"), "/mnt");
    must(chdir("/mnt"), "/mnt");
    mkdir("usr", 0755);
    show("/usr", "usr", MS_RDONLY | nothing);
    for (size_t i = 0; i < LEN(links); i++)
        must(symlink(links[i][0], links[i][1]), links[i][1]);
    mkdir("etc", 0755);
    for (size_t i = 0; i < LEN(shown); i++) {
        struct stat stat_of;
        if (stat(shown[i], &stat_of) < 0)
            continue;
        if (S_ISDIR(stat_of.st_mode))
            mkdir(shown[i] + 1, 0755);
        else
            touch(shown[i] + 1);
        show(shown[i], shown[i] + 1, MS_RDONLY | nothing);
    }
    fresh("proc", "proc", CLOSED, "hidepid=invisible");
    for (size_t i = 0; i < LEN(hidden); i++)
        mount("/dev/null", hidden[i], NULL, MS_BIND, NULL);
    for (size_t i = 0; i < LEN(sealed); i++)
        if (mount(sealed[i], sealed[i], NULL, MS_BIND | MS_REC, NULL) == 0)
            must(mount(NULL, sealed[i], NULL, MS_BIND | MS_REMOUNT | MS_RDONLY | CLOSED, NULL), sealed[i]);
    fresh("tmpfs", "dev", nothing, "size=64k,mode=0755");
    for (size_t i = 0; i < LEN(devices); i++) {
        touch(devices[i] + 1);
        must(mount(devices[i], devices[i] + 1, NULL, MS_BIND, NULL), devices[i]);
    }
    fresh("devpts", "dev/pts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620");
    fresh("tmpfs", "dev/shm", nothing, "size=64m,mode=1777");
    fresh("mqueue", "dev/mqueue", CLOSED, NULL);
    fresh("tmpfs", "tmp", nothing, "size=64m,mode=1777");
    fresh("tmpfs", "run", nothing, "size=64m,mode=0755");
    mkdir("home", 0755);
    fresh("tmpfs", "home/agent", nothing, "size=64m,mode=0700");
    directories(workspace);
    show(workspace, workspace + 1, nothing);
    must(syscall(SYS_pivot_root, ".", "."), "pivot_root");
    must(umount2(".", MNT_DETACH), "umount");
    must(mount(NULL, "/", NULL, MS_BIND | MS_REMOUNT | MS_RDONLY | nothing, NULL), "/");
    must(chdir(workspace), workspace);
}

static void network(void)
{
    int lo = must(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), "socket");
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    must(ioctl(lo, SIOCSIFFLAGS, &request), "lo");
    close(lo);
}

/* Where the kernel has no landlock there is one wall less to raise. */
static void landlock(const char *workspace)
{
    const char *const paths[] = {"/usr", "/etc", "/proc", "/dev", "/tmp", "/run", "/home", workspace};
    struct landlock_ruleset_attr handled = {.handled_access_fs = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1};
    int rules = syscall(SYS_landlock_create_ruleset, &handled, sizeof handled, 0);
    if (rules < 0)
        return;
    for (size_t i = 0; i < LEN(paths); i++) {
        struct landlock_path_beneath_attr beneath = {.allowed_access = handled.handled_access_fs,
                                                     .parent_fd = open(paths[i], O_PATH | O_CLOEXEC)};
        must(syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &beneath, 0), paths[i]);
        close(beneath.parent_fd);
    }
    must(syscall(SYS_landlock_restrict_self, rules, 0), "landlock");
    close(rules);
}

/* Some comparisons in a row: about as long as the way to a common call in a tree of ranges. */
static void filter(void)
{
    struct sock_filter code[18] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0)};
    for (size_t i = 1; i < LEN(code) - 1; i += 2) {
        code[i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 1000 + i, 0, 1);
        code[i + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    }
    code[LEN(code) - 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {LEN(code), code};
    must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0), "seccomp");
}

static int status_of(pid_t pid)
{
    int status;
    must(waitpid(pid, &status, 0), "wait");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static void pid1(const char *program, char *workspace)
{
    must(prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0), "prctl");
    files(workspace);
    must(sethostname("floor", 5), "hostname");
    network();
    must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs");
    landlock(workspace);
    for (int capability = 0; prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0; capability++)
        continue;
    pid_t pid = must(vfork(), "vfork");
    if (pid == 0) {
        setsid();
        filter();
        execl(program, program, NULL);
        _exit(127);
    }
    _exit(status_of(pid));
}

int main(int argc, char **argv)
{
    static char workspace[4096];
    int go[2];
    char map[32];

    if (argc != 2 || !getcwd(workspace, sizeof workspace))
        return 125;
    must(pipe2(go, O_CLOEXEC), "pipe");
    struct clone_args born = {.flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS |
                                       CLONE_NEWCGROUP | CLONE_NEWNET,
                              .exit_signal = SIGCHLD};
    pid_t pid = must(syscall(SYS_clone3, &born, sizeof born), "clone3");
    if (pid == 0) {
        char byte;
        /* The end of the stream means that the parent gave up. */
        close(go[1]);
        must(read(go[0], &byte, 1) - 1, "read");
        pid1(argv[1], workspace);
    }
    put(pid, "setgroups", "deny");
    snprintf(map, sizeof map, "0 %d 1", getegid());
    put(pid, "gid_map", map);
    snprintf(map, sizeof map, "0 %d 1", geteuid());
    put(pid, "uid_map", map);
    must(write(go[1], "g", 1), "write");
    return status_of(pid);
}
