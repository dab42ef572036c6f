//! The allow-list of git configuration variables that are kept when a sandbox wrote them. Any other
//! variable may name a program, a file with more variables, or an address that git passes to a program, in
//! this version of git or the next.

use super::git_config::ConfigEntry;

/// The type of value that a variable may have.
#[derive(Debug, Clone, Copy)]
enum ValueKind {
    /// A boolean, a number or one word: without spaces, slashes, and characters that a shell or an option
    /// would need.
    Word,
    /// Text that git only displays or stores.
    Text,
    /// The name of a remote, a branch or a ref, which may contain slashes; not an option and not an
    /// address.
    Name,
    /// A refspec to fetch or push (gitrevisions(7)): like a name, with `+`, `:` and `*`.
    Refspec,
    /// An address that git itself connects to, or a path.
    Url,
    /// A directory that must be in the workspace.
    WorkTree,
}

use ValueKind::{Name, Refspec, Text, Url, Word, WorkTree};

/// Variables of sections without a subsection.
const SECTION_KEYS: &[(&str, &[&str], ValueKind)] = &[
    (
        "core",
        &[
            "repositoryformatversion",
            "filemode",
            "bare",
            "logallrefupdates",
            "ignorecase",
            "precomposeunicode",
            "symlinks",
            "autocrlf",
            "eol",
            "safecrlf",
            "sharedrepository",
            "sparsecheckout",
            "sparsecheckoutcone",
            "untrackedcache",
            "splitindex",
            "commitgraph",
            "multipackindex",
            "preloadindex",
            "quotepath",
            "abbrev",
            "trustctime",
            "checkstat",
            "compression",
            "loosecompression",
            "bigfilethreshold",
            "whitespace",
            "hidedotfiles",
            "longpaths",
            "createobject",
            "warnambiguousrefs",
            "packedgitlimit",
            "packedgitwindowsize",
            "deltabasecachelimit",
            "fsync",
            "fsyncmethod",
        ],
        Word,
    ),
    ("core", &["worktree"], WorkTree),
    (
        "extensions",
        &[
            "worktreeconfig",
            "objectformat",
            "compatobjectformat",
            "refstorage",
            "preciousobjects",
            "noop",
            "relativeworktrees",
            "submodulepathconfig",
        ],
        Word,
    ),
    ("extensions", &["partialclone"], Name),
    ("user", &["name", "email"], Text),
    ("author", &["name", "email"], Text),
    ("committer", &["name", "email"], Text),
    ("user", &["useconfigonly"], Word),
    ("init", &["defaultbranch"], Name),
    ("init", &["defaultobjectformat", "defaultrefformat"], Word),
    ("pull", &["rebase", "ff", "autostash"], Word),
    ("push", &["default", "autosetupremote", "followtags", "recursesubmodules", "usebitmaps"], Word),
    (
        "merge",
        &["ff", "conflictstyle", "renames", "renamelimit", "stat", "log", "autostash", "branchdesc"],
        Word,
    ),
    (
        "rebase",
        &[
            "autostash",
            "autosquash",
            "updaterefs",
            "missingcommitscheck",
            "stat",
            "forkpoint",
            "rebasemerges",
        ],
        Word,
    ),
    (
        "fetch",
        &["prune", "prunetags", "parallel", "recursesubmodules", "writecommitgraph", "fsckobjects"],
        Word,
    ),
    ("rerere", &["enabled", "autoupdate"], Word),
    ("gc", &["auto", "autodetach", "autopacklimit", "packrefs", "cruftpacks"], Word),
    ("maintenance", &["auto", "strategy", "autodetach"], Word),
    (
        "diff",
        &["renames", "renamelimit", "algorithm", "colormoved", "mnemonicprefix", "noprefix", "context"],
        Word,
    ),
    ("commit", &["gpgsign", "verbose", "cleanup", "status"], Word),
    ("tag", &["gpgsign", "sort"], Word),
    ("log", &["date", "decorate", "follow", "showsignature", "abbrevcommit"], Word),
    (
        "status",
        &["short", "branch", "showuntrackedfiles", "submodulesummary", "renames", "aheadbehind"],
        Word,
    ),
    ("checkout", &["defaultremote"], Name),
    ("checkout", &["guess", "workers", "thresholdforparallelism"], Word),
    ("clone", &["defaultremotename"], Name),
    ("color", &["ui", "status", "branch", "diff", "interactive"], Word),
    ("column", &["ui"], Word),
    ("feature", &["manyfiles", "experimental"], Word),
    ("index", &["version", "threads", "sparse", "skiphash", "recordendofindexentries"], Word),
    (
        "pack",
        &["threads", "window", "depth", "windowmemory", "writebitmaps", "usesparse", "compression"],
        Word,
    ),
    ("submodule", &["recurse", "fetchjobs", "propagatebranches"], Word),
    ("submodule", &["active"], Refspec),
    ("branch", &["autosetupmerge", "autosetuprebase", "sort"], Word),
    ("transfer", &["fsckobjects", "unpacklimit"], Word),
    ("receive", &["denycurrentbranch", "denynonfastforwards", "denydeletes", "fsckobjects"], Word),
    ("http", &["postbuffer"], Word),
    ("lfs", &["repositoryformatversion", "locksverify"], Word),
    ("remote", &["pushdefault"], Name),
];

/// Variables of sections with a subsection.
const SUBSECTION_KEYS: &[(&str, &[&str], ValueKind)] = &[
    ("remote", &["url", "pushurl"], Url),
    ("remote", &["fetch", "push"], Refspec),
    (
        "remote",
        &[
            "tagopt",
            "prune",
            "prunetags",
            "mirror",
            "skipdefaultupdate",
            "skipfetchall",
            "promisor",
            "followremotehead",
        ],
        Word,
    ),
    ("remote", &["partialclonefilter", "gh-resolved"], Name),
    ("branch", &["remote", "pushremote", "merge", "vscode-merge-base", "gh-merge-base"], Name),
    ("branch", &["rebase"], Word),
    ("branch", &["description"], Text),
    ("submodule", &["url"], Url),
    ("submodule", &["active", "ignore", "fetchrecursesubmodules", "shallow"], Word),
    ("submodule", &["update"], Word),
    ("submodule", &["branch"], Name),
    // The path of a submodule in the index, relative to the work tree of .gitmodules.
    ("submodule", &["path"], Text),
    ("lfs", &["locksverify"], Word),
];

/// The variables allowed in `sequencer/opts` (git's sequencer.c).
const SEQUENCER_KEYS: &[&str] = &[
    "no-commit",
    "edit",
    "allow-empty",
    "allow-empty-message",
    "drop-redundant-commits",
    "keep-redundant-commits",
    "signoff",
    "record-origin",
    "allow-ff",
    "mainline",
    "allow-rerere-auto",
    "default-msg-cleanup",
    "committer-date",
    "ignore-date",
];

/// Built-in merge strategies. For any other name git runs `git-merge-NAME`; NAME may contain a slash and
/// then be a file of the work tree.
pub(super) const STRATEGIES: &[&str] = &["ort", "recursive", "resolve", "octopus", "ours", "subtree"];

/// Whether `entry` of a repository's configuration is kept. `is_inside` returns whether a directory, such
/// as `core.worktree`, is in the workspace.
pub(super) fn is_allowed(entry: &ConfigEntry, is_inside: &dyn Fn(&[u8]) -> bool) -> bool {
    let (section, sub) = entry.parts();
    let table = if sub.is_some() { SUBSECTION_KEYS } else { SECTION_KEYS };
    let fits = |(name, keys, _): &&(&str, &[&str], ValueKind)| {
        name.as_bytes() == section && keys.contains(&entry.key.as_str())
    };
    // Every key of `advice` is a boolean.
    if section == b"advice" && sub.is_none() {
        return is_value(entry, Word, is_inside);
    }
    sub.is_none_or(is_line)
        && table.iter().find(fits).is_some_and(|(_, _, value)| is_value(entry, *value, is_inside))
}

/// Whether `entry` of `sequencer/opts` is kept.
pub(super) fn is_allowed_in_sequencer(entry: &ConfigEntry) -> bool {
    let known = SEQUENCER_KEYS.contains(&entry.key.as_str()) && is_value(entry, Word, &|_| false);
    let value = entry.value.as_deref().unwrap_or_default();
    let strategy = entry.key == "strategy" && STRATEGIES.iter().any(|name| name.as_bytes() == value);
    let option = matches!(entry.key.as_str(), "strategy-option" | "gpg-sign") && is_line(value);
    entry.section == b"options" && (known || strategy || option)
}

fn is_value(entry: &ConfigEntry, kind: ValueKind, is_inside: &dyn Fn(&[u8]) -> bool) -> bool {
    // A key without a value means true, which only a boolean can be.
    let Some(value) = entry.value.as_deref() else { return matches!(kind, Word) };
    let only = |more: &[u8]| value.iter().all(|byte| byte.is_ascii_alphanumeric() || more.contains(byte));
    let option = value.starts_with(b"-");
    match kind {
        Word => value.len() <= 64 && (!option || value[1..].iter().all(u8::is_ascii_digit)) && only(b"._,-+"),
        Text => is_line(value),
        Name => {
            !option && is_line(value) && !value.iter().any(|byte| b":\\ '\"`$;&|<>()*?[]!^~".contains(byte))
        }
        Refspec => {
            !option
                && is_line(value)
                && !value.iter().any(|byte| b"\\ '\"`$;&|<>()?!".contains(byte))
                && !contains_bytes(value, b"::")
        }
        Url => is_url(value),
        WorkTree => is_line(value) && is_inside(value),
    }
}

fn is_line(text: &[u8]) -> bool {
    text.iter().all(|byte| *byte >= b' ' && *byte != 0x7f)
}

fn contains_bytes(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// Whether git itself connects to the address: a URL with a built-in transport, `HOST:PATH` as for ssh, or
/// a path. `NAME::ADDRESS` runs a program, and so can text that looks like an option to the ssh or
/// upload-pack that git runs.
fn is_url(url: &[u8]) -> bool {
    const SCHEMES: [&[u8]; 8] = [b"https", b"http", b"ssh", b"git", b"file", b"git+ssh", b"ssh+git", b"ftps"];
    if url.is_empty()
        || url.starts_with(b"-")
        || !is_line(url)
        || url.iter().any(|byte| b"`$;|<>\\\"' ".contains(byte))
    {
        return false;
    }
    let Some(at) = url.windows(3).position(|part| part == b"://") else {
        let host = url.split(|byte| *byte == b':').next().unwrap_or(url);
        let remote = host.len() < url.len() && !host.contains(&b'/');
        return !contains_bytes(url, b"::") && (!remote || is_host(host)) && !contains_bytes(url, b":-");
    };
    let (scheme, rest) = (url[..at].to_ascii_lowercase(), &url[at + 3..]);
    let host = rest.split(|byte| *byte == b'/').next().unwrap_or(rest);
    SCHEMES.contains(&scheme.as_slice())
        && (scheme == b"file" || is_host(host))
        && !contains_bytes(rest, b"/-")
}

/// `[user@]host[:port]`, of which no part is an option.
fn is_host(host: &[u8]) -> bool {
    !host.is_empty()
        && host.split(|byte| *byte == b'@').all(|part| !part.is_empty() && !part.starts_with(b"-"))
}

#[cfg(test)]
mod tests {
    use super::super::git_config::parse;
    use super::*;

    fn stays(text: &str) -> bool {
        let entries = parse(text.as_bytes()).unwrap();
        assert_eq!(entries.len(), 1, "{text}");
        is_allowed(&entries[0], &|path| path == b"../../../sub")
    }

    #[test]
    fn what_git_writes_itself_stays() {
        for text in [
            "[core]\nrepositoryformatversion = 0",
            "[core] bare",
            "[core]\nworktree = ../../../sub",
            "[core]\nabbrev = -1",
            "[remote \"origin\"]\nurl = https://example.com/a/b.git",
            "[remote \"origin\"]\nurl = git@example.com:a/b.git",
            "[remote \"origin\"]\nurl = ssh://git@example.com:2222/a/b.git",
            "[remote \"origin\"]\nurl = /srv/git/a-b.git",
            "[remote \"origin\"]\nurl = ../other",
            "[remote \"origin\"]\nfetch = +refs/heads/*:refs/remotes/origin/*",
            "[branch \"main\"]\nmerge = refs/heads/main",
            "[branch \"main\"]\nremote = .",
            "[submodule \"a/b\"]\nurl = ../b",
            "[user]\nname = Ann O'Neill (work)",
            "[user]\nemail = a@b",
            "[advice]\ndetachedHead = false",
            "[extensions]\nworktreeConfig = true",
            "[lfs \"https://example.com/a.git/info/lfs\"]\nlocksverify = true",
        ] {
            assert!(stays(text), "{text}");
        }
    }

    #[test]
    fn what_starts_a_program_does_not() {
        for text in [
            "[core]\nhooksPath = x",
            "[core]\nfsmonitor = x",
            "[core]\nsshCommand = x",
            "[core]\npager = x",
            "[core]\neditor = x",
            "[core]\naskPass = x",
            "[core]\ngitProxy = x",
            "[core]\nalternateRefsCommand = x",
            "[core]\nworktree = /home/user",
            "[core]\nattributesFile = x",
            "[core]\nautocrlf = a b",
            "[pager]\nstatus = x",
            "[sequence]\neditor = x",
            "[credential]\nhelper = !x",
            "[gpg]\nprogram = x",
            "[gpg \"ssh\"]\nprogram = x",
            "[credential \"https://a\"]\nhelper = x",
            "[filter \"a\"]\nclean = x",
            "[filter \"a\"]\nprocess = x",
            "[diff]\nexternal = x",
            "[diff \"a\"]\ncommand = x",
            "[diff \"a\"]\ntextconv = x",
            "[merge \"a\"]\ndriver = x",
            "[alias]\nst = !x",
            "[alias \"a\"]\ncommand = !x",
            "[remote \"o\"]\nuploadpack = x",
            "[remote \"o\"]\nreceivepack = x",
            "[remote \"o\"]\nvcs = x",
            "[remote \"o\"]\nproxy = x",
            "[remote \"o\"]\nurl = ext::sh -c x",
            "[remote \"o\"]\nurl = ext::x",
            "[remote \"o\"]\nurl = -x",
            "[remote \"o\"]\nurl = ssh://-oProxyCommand=x/y",
            "[remote \"o\"]\nurl = -oProxyCommand=x:y",
            "[remote \"o\"]\nurl = a@-b:c",
            "[remote \"o\"]\nurl = h:-x",
            "[remote \"o\"]\nurl = foo://x/y",
            "[remote \"o\"]\nurl",
            "[branch \"m\"]\nremote = ext::x",
            "[branch \"m\"]\nmergeOptions = -s x/y",
            "[pull]\ntwohead = x/y",
            "[submodule \"s\"]\nupdate = !x",
            "[trailer \"a\"]\ncommand = x",
            "[trailer \"a\"]\ncmd = x",
            "[interactive]\ndiffFilter = x",
            "[protocol \"ext\"]\nallow = always",
            "[uploadpack]\npackObjectsHook = x",
            "[difftool \"a\"]\ncmd = x",
            "[mergetool \"a\"]\ncmd = x",
            "[browser \"a\"]\ncmd = x",
            "[man \"a\"]\ncmd = x",
            "[instaweb]\nhttpd = x",
            "[sendemail]\nsmtpServer = x",
            "[include]\npath = x",
            "[includeIf \"gitdir:x\"]\npath = x",
            "[url \"ext::x\"]\ninsteadOf = y",
            "[http]\nproxy = x",
            "[ssh]\nvariant = x",
            "[init]\ntemplateDir = x",
            "[commit]\ntemplate = x",
            "[guitool \"a\"]\ncmd = x",
            "[web]\nbrowser = x",
            "[hook \"a\"]\ncommand = x",
            "[maintenance]\nrepo = x",
            "[receive]\nprocReceiveRefs = x",
            "[tar \"a\"]\ncommand = x",
            "[imap]\ntunnel = x",
            "[fsmonitor]\nsocketDir = x",
            "[core \"x\"]\nbare = true",
            "[lfs \"x\"]\nextension = x",
            "[lfs \"customtransfer.x\"]\npath = x",
            "[splitIndex]\nx = 1",
        ] {
            assert!(!stays(text), "{text}");
        }
    }

    #[test]
    fn strategies_that_are_files_are_not_allowed() {
        let one = |text: &str| is_allowed_in_sequencer(&parse(text.as_bytes()).unwrap()[0]);
        assert!(one("[options]\nstrategy = ort") && one("[options]\nmainline = 1") && one("[options]\nedit"));
        assert!(!one("[options]\nstrategy = x/evil") && !one("[options]\nx = y") && !one("[core]\nedit = 1"));
    }
}
