//! What a program could leave in a workspace so that the host runs it: generated from the keys by which git starts
//! programs, the places where git reads them, and the names that other programs obey.

/// The program that must not run on the host, in every attack: a file of the workspace.
pub(super) const EVIL: &str = "evil";

/// One attack.
#[derive(Debug, Clone)]
pub(super) struct Attack {
    pub(super) name: String,
    /// Shell, run inside in the workspace; `$E` is the absolute path of [`EVIL`].
    pub(super) script: String,
    /// Where the host's commands are run, beside the top.
    pub(super) directories: Vec<&'static str>,
    /// Names that must be gone afterwards, or have been told.
    pub(super) planted: Vec<String>,
}

/// Keys and their values, as arguments of `git config -f FILE`.
const KEYS: &[(&str, &str)] = &[
    ("core.fsmonitor", "$E"),
    ("core.hooksPath", "$PWD/hooks.d"),
    ("core.sshCommand", "$E"),
    ("core.editor", "$E"),
    ("core.pager", "$E"),
    ("core.alternateRefsCommand", "$E"),
    ("sequence.editor", "$E"),
    ("filter.x.clean", "$E"),
    ("filter.x.smudge", "$E"),
    ("filter.x.process", "$E"),
    ("diff.external", "$E"),
    ("diff.x.command", "$E"),
    ("diff.x.textconv", "$E"),
    ("merge.x.driver", "$E"),
    ("gpg.program", "$E"),
    ("credential.helper", "!$E"),
    ("alias.st", "!$E"),
    ("include.path", "$PWD/more.config"),
    ("includeIf.gitdir:/.path", "$PWD/more.config"),
    ("remote.origin.uploadpack", "$E"),
    ("remote.origin.url", "ext::$E"),
    ("branch.main.mergeOptions", "-s ../evil"),
    ("submodule.x.update", "!$E"),
    ("trailer.x.command", "$E"),
    ("interactive.diffFilter", "$E"),
    ("uploadpack.packObjectsHook", "$E"),
];

/// Where a configuration can be: how its git directory is made, and where that is.
const PLACES: &[(&str, &str, &str, &str)] = &[
    ("nested", "git init -q -b main nest; echo a > nest/f; git -C nest add f", "nest/.git", "nest"),
    ("deep", "mkdir -p a/b/c/d/e; git init -q -b main a/b/c/d/e", "a/b/c/d/e/.git", "a/b/c/d/e"),
    ("bare", "git init -q --bare store", "store", "store"),
    ("separate", "git init -q --separate-git-dir=apart sep", "apart", "sep"),
    (
        "hidden",
        "mkdir -p .cache/x; git init -q .cache/x/y; printf 'gitdir: .cache/x/y/.git\\n' > .gitx; mkdir via; \
        printf 'gitdir: ../.cache/x/y/.git\\n' > via/.git",
        ".cache/x/y/.git",
        "via",
    ),
    (
        "common",
        "git init -q com; mkdir shared; cp -r com/.git/. shared/; printf '../../shared\\n' > com/.git/commondir",
        "shared",
        "com",
    ),
    (
        "unshaped",
        "git init -q odd; git init -q ptr; rm -rf ptr/.git; mkdir -p odd/.git/objects/aa; cp -r odd/.git odd/tmp; \
        mv odd/tmp odd/.git/objects/aa/g; printf 'gitdir: ../odd/.git/objects/aa/g\\n' > ptr/.git",
        "odd/.git/objects/aa/g",
        "ptr",
    ),
];

fn attack(
    name: impl Into<String>,
    script: impl Into<String>,
    directories: &[&'static str],
    planted: &[&str],
) -> Attack {
    Attack {
        name: name.into(),
        script: script.into(),
        directories: directories.to_vec(),
        planted: planted.iter().map(|name| (*name).to_owned()).collect(),
    }
}

/// All of them.
pub(super) fn all() -> Vec<Attack> {
    let mut all = Vec::new();
    for (at, (key, value)) in KEYS.iter().enumerate() {
        // Every key at the first place, and each place with several keys.
        for (index, (place, make, git, directory)) in PLACES.iter().enumerate() {
            if index == 0 || (at + index) % 9 == 0 {
                let script = format!(
                    "{make}; {PREPARE}; git config -f {git}/config {key} \"{value}\"; {ATTRIBUTES} {directory}/.gitattributes; exit 0"
                );
                all.push(attack(format!("{key} in {place}"), script, &[directory], &[]));
            }
        }
    }
    for hook in [
        "pre-commit",
        "post-checkout",
        "post-index-change",
        "prepare-commit-msg",
        "pre-rebase",
        "reference-transaction",
    ] {
        let plant = |git: &str| format!("cp $E {git}/hooks/{hook}; exit 0");
        all.push(attack(
            format!("{hook} in nested"),
            format!("git init -q nest; {}", plant("nest/.git")),
            &["nest"],
            &[],
        ));
        all.push(attack(
            format!("{hook} in bare"),
            format!("git init -q --bare store; {}", plant("store")),
            &["store"],
            &[],
        ));
        all.push(attack(format!("{hook} at the top"), format!("git init -q .; {}", plant(".git")), &[], &[]));
    }
    all.extend(layouts());
    let names = [
        ".envrc",
        ".bashrc",
        ".vscode/tasks.json",
        ".cursor/mcp.json",
        ".zed/tasks.json",
        ".idea/workspace.xml",
        ".husky/pre-commit",
        ".devcontainer/devcontainer.json",
        ".claude/settings.json",
        ".gdbinit",
        ".nvim.lua",
        ".mise.toml",
        ".npmrc",
        ".cargo/config.toml",
        ".pre-commit-config.yaml",
        ".gemini/settings.json",
        ".hg/hgrc",
    ];
    for name in names {
        for at in ["", "down/", "a/b/c/"] {
            let path = format!("{at}{name}");
            let script = format!("mkdir -p \"$(dirname {path})\"; echo evil > {path}; exit 0");
            all.push(attack(format!("{path} made"), script, &[], &[&path]));
        }
    }
    all
}

/// What keys lead to.
const PREPARE: &str = "mkdir -p hooks.d; for h in pre-commit post-checkout post-index-change; do cp $E hooks.d/$h; done; \
    printf '[core]\\n\\tfsmonitor = %s\\n' $E > more.config";
const ATTRIBUTES: &str = "printf '* filter=x diff=x merge=x\\n' >";

/// Git directories in unusual places, and files beside the configuration.
fn layouts() -> Vec<Attack> {
    let monitor = "config core.fsmonitor $E";
    vec![
        attack(
            "embedded in the index",
            format!(
                "git init -q sub; echo a > sub/f; git -C sub add f; {ATTRIBUTES} sub/.gitattributes; git -C sub config filter.x.clean $E; git add sub; touch sub/f; exit 0"
            ),
            &["sub"],
            &[],
        ),
        attack("old directory renamed to .git", "mkdir new; mv old-git new/.git; exit 0", &["new"], &[]),
        attack(
            "old directory moved above an old repository",
            "mkdir -p m; mv old-git m/.git; mv m n; exit 0",
            &["n"],
            &[],
        ),
        attack(
            "old files moved into a new .git",
            "git init -q new; mv old-git/config new/.git/config; exit 0",
            &["new"],
            &[],
        ),
        attack(
            "old hooks moved into a new .git",
            "git init -q new; rm -r new/.git/hooks; mv old-git/hooks new/.git/hooks; exit 0",
            &["new"],
            &[],
        ),
        attack(
            "old bare directory completed",
            "mkdir -p old-git/objects old-git/refs; echo 'ref: refs/heads/main' > old-git/HEAD; exit 0",
            &["old-git"],
            &[],
        ),
        attack(
            "a .git link",
            format!("git init -q real; git -C real {monitor}; mkdir l; ln -s ../real/.git l/.git; exit 0"),
            &["real", "l"],
            &[],
        ),
        attack(
            "a .git file out of the workspace",
            "mkdir out; echo 'gitdir: /nonexistent/evil' > out/.git; exit 0",
            &["out"],
            &["out/.git"],
        ),
        attack(
            "a hard link to a configuration",
            "git init -q hard; ln hard/.git/config notes.txt; exit 0",
            &["hard"],
            &[],
        ),
        attack(
            "alternates out of the workspace",
            "git init -q alt; mkdir -p alt/.git/objects/info; echo /nonexistent/objects > alt/.git/objects/info/alternates; exit 0",
            &["alt"],
            &["alt/.git/objects/info/alternates"],
        ),
        attack(
            "a worktree's configuration",
            "git init -q -b main wt; cd wt; git -c user.name=t -c user.email=t@t commit -qm x --allow-empty; git worktree add -q ../tree; git config extensions.worktreeConfig true; printf '[core]\\n\\tfsmonitor = %s\\n' $E > .git/worktrees/tree/config.worktree; exit 0",
            &["wt", "tree"],
            &[],
        ),
        attack(
            "a submodule's directory",
            format!(
                "git init -q super; git init -q --bare super/.git/modules/s; git -C super/.git/modules/s {monitor}; mkdir super/s; echo 'gitdir: ../.git/modules/s' > super/s/.git; exit 0"
            ),
            &["super", "super/s"],
            &[],
        ),
        attack(
            "exec lines of a rebase",
            "git init -q -b main reb; cd reb; export GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@t GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@t; for n in 1 2 3; do echo $n > f$n; git add .; git commit -qm $n; done; GIT_SEQUENCE_EDITOR='sed -i 1ibreak' git rebase -q -i HEAD~2; printf 'exec %s\\nx %s\\n' $E $E >> .git/rebase-merge/git-rebase-todo; exit 0",
            &["reb"],
            &[],
        ),
        attack(
            "a strategy of a rebase that is a file",
            "git init -q -b main reb; cd reb; export GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@t GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@t; for n in 1 2 3; do echo $n > f$n; git add .; git commit -qm $n; done; GIT_SEQUENCE_EDITOR='sed -i 1ibreak' git rebase -q -i HEAD~2; mkdir git-merge-x; cp $E git-merge-x/evil; printf 'pick %s\\n' $(git rev-parse HEAD~1) >> .git/rebase-merge/git-rebase-todo; echo x/evil > .git/rebase-merge/strategy; exit 0",
            &["reb"],
            &["reb/.git/rebase-merge/strategy"],
        ),
        attack(
            "submodules with commands",
            "printf '[submodule \"x\"]\\n\\tpath = x\\n\\turl = ext::sh\\n\\tupdate = !evil\\n' > lower.txt; git init -q gm; mv lower.txt gm/.gitmodules; exit 0",
            &["gm"],
            &[],
        ),
        attack(
            "very deep",
            "for n in $(seq 200); do mkdir d; cd d; done; git init -q .; git config core.fsmonitor $E; exit 0",
            &[],
            &[],
        ),
        attack(
            "a configuration in several spellings",
            "git init -q sp; printf '\\357\\273\\277[CORE]\\r\\n\\tfsMonitor = \"%s\" ; x\\r\\n[core \"\"]\\n' $E > sp/.git/config; exit 0",
            &["sp"],
            &[],
        ),
        attack(
            "a configuration that git refuses",
            "git init -q bad; printf '[core]\\n\\tfsmonitor = %s\\n[' $E > bad/.git/config; exit 0",
            &["bad"],
            &[],
        ),
        attack(
            "a capital .GIT",
            format!("git init -q cap; git -C cap {monitor}; mv cap/.git cap/.GIT; exit 0"),
            &["cap"],
            &[],
        ),
        attack(
            "a closed directory",
            format!("git init -q shut/in; git -C shut/in {monitor}; chmod 0311 shut; exit 0"),
            &["shut/in"],
            &[],
        ),
        attack(
            "a renamed top",
            format!("git init -q x; git -C x {monitor}; mv x/.git .git; exit 0"),
            &[],
            &[],
        ),
    ]
}
