//! What a workspace may be, and what of it the agent may not write.

use std::fs;
use std::path::Path;

use super::wrapped::Wrap;

as_each_caller! {
    /// Start-up files, the configuration of agents and saggar's own policy.
    fn files_that_the_host_obeys_are_not_written(caller) {
        let wrap = Wrap::new(caller);
        wrap.place.make_dir("work/.claude", 0o755);
        wrap.place.make_dir("work/.vscode", 0o755);
        let names = [".bashrc", ".profile", ".zshrc", ".envrc", ".mcp.json", ".claude/settings.json",
            ".claude/settings.local.json", ".vscode/tasks.json", ".npmrc", ".gitconfig"];
        for name in names {
            wrap.place.make_file(&format!("work/{name}"), "{}");
        }
        wrap.place.make_file("work/saggar.toml", "[limits]\nnofile = 4096\n");
        let script: String = names.iter().copied().chain(["saggar.toml"]).map(|name| format!(
            "(echo x > {name}) 2>&- && echo wrote {name}; rm -f {name} 2>&- && echo removed {name}; \
             mv {name} other 2>&- && echo moved {name}; ln {name} hard 2>&- && echo linked {name}; \
             (echo x > new; mv new {name}) 2>&- && echo replaced {name}; ")).collect();
        let parents = "mv .claude c 2>&- && echo moved .claude; mv .vscode v 2>&- && echo moved .vscode; \
            ln -sfn evil .claude 2>&- && echo linked .claude; touch .vscode/launch.json 2>&- && echo new in .vscode; exit 0";
        // `ln -sfn` on a directory makes a link in it.
        let said = wrap.sh(&format!("{script}{parents}")).success();
        assert!(said.is_empty() || said == "linked .claude\n", "{said}");
        assert!(wrap.work().join(".claude").symlink_metadata().unwrap().is_dir());
        for name in names {
            assert_eq!(fs::read_to_string(wrap.work().join(name)).unwrap(), "{}", "{name}");
        }
    }

    /// DECISIONS 23.
    fn system_directory_as_workspace_is_refused(caller) {
        let wrap = Wrap::new(caller);
        let refused = ["/", "/etc", "/etc/ssl", "/usr", "/usr/bin", "/usr/lib", "/usr/share/doc", "/bin", "/proc", "/proc/1",
            "/sys", "/dev", "/dev/shm", "/boot", "/tmp", "/var", "/run", "/home", "/root", "/opt"];
        for directory in refused.into_iter().filter(|path| fs::read_dir(path).is_ok()) {
            wrap.run(&["--workspace", directory], &["/bin/true"]).refused(&[directory]);
        }
        wrap.run(&["--workspace", "/nonexistent"], &["/bin/true"]).refused(&["look for /nonexistent: No such file", "name a path"]);
        wrap.place.make_file("work/file", "");
        wrap.run(&["--workspace", "file"], &["/bin/true"]).refused(&["file is not a directory"]);
    }

    /// DECISIONS 23: a home, and what holds one, by whatever name it is called.
    fn a_home_is_a_workspace_only_when_it_is_said(caller) {
        let wrap = Wrap::new(caller);
        let home = wrap.place.join("home");
        std::os::unix::fs::symlink(&home, wrap.place.join("link")).unwrap();
        let names = [home.clone(), wrap.place.join("link"), wrap.place.path().to_owned(), wrap.work().join("../home")];
        for name in names {
            wrap.run(&["--workspace", name.to_str().unwrap()], &["/bin/true"]).refused(&["home"]);
        }
        let allowed = wrap.run(&["--allow-home", "--workspace", home.to_str().unwrap()], &["/bin/pwd"]).success();
        assert_eq!(Path::new(allowed.trim()), home);
    }

    /// A link is followed once, by saggar; inside is the real path.
    fn the_workspace_has_its_real_path_inside(caller) {
        let wrap = Wrap::new(caller);
        std::os::unix::fs::symlink(wrap.work(), wrap.place.join("link")).unwrap();
        let said = wrap.run(&["--workspace", "../link"], &["/bin/sh", "-c", "pwd -P; echo x > made"]).success();
        assert_eq!(Path::new(said.trim()), wrap.work());
        assert!(wrap.work().join("made").exists());
    }
}
