//! Bytes, sizes and modes between the two terminals.

use std::os::unix::process::ExitStatusExt;

use nix::sys::signal::Signal;

use super::screen::Stream::{Pipe, Terminal};
use super::screen::{ALL, Screen, read_all, wrapped};
use crate::support::place::Place;

as_each_caller! {
    /// The size is there before the program, and follows the host's.
    fn the_size_is_the_hosts_and_follows_it(caller) {
        let place = Place::new(caller);
        let script = "import os, signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGWINCH})\n\
                      os.system('stty size')\nprint('up', flush=True)\nsignal.sigwait({signal.SIGWINCH})\n\
                      os.system('stty size')";
        let mut screen = Screen::wrap(&place, caller, &["/usr/bin/python3", "-c", script]);
        assert!(screen.expect("up").contains("31 97"));
        screen.resize(40, 132);
        screen.expect("40 132");
        assert!(screen.finish().1.success());
    }

    /// Modes that the host's terminal had are those of the sandbox's, before the program starts.
    fn the_modes_are_the_hosts(caller) {
        let place = Place::new(caller);
        let mut line = vec!["sh".to_owned(), "-c".to_owned()];
        line.push(format!("stty -echoctl erase ^H -ixon; {} -a", wrapped(&place, &["stty"]).join(" ")));
        let mut screen = Screen::streams(&place, Some(caller), ALL, &line);
        let (text, _) = screen.finish();
        assert!(text.contains("erase = ^H;") && text.contains("-ixon ") && text.contains("-echoctl"), "{text}");
    }

    fn the_exit_status_is_the_programs(caller) {
        let place = Place::new(caller);
        for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -INT $$", 130), ("kill -9 $$", 137)] {
            let mut screen = Screen::script(&place, caller, ALL, script);
            assert_eq!(screen.wait().code(), Some(code), "{script}");
            screen.assert_untouched();
        }
    }

    /// 10 MiB of numbered lines, to a terminal that reads when it likes.
    fn a_long_output_arrives_whole_and_in_order(caller) {
        let place = Place::new(caller);
        let mut screen = Screen::script(&place, caller, ALL, "stty -opost; seq 1500000");
        let (text, status) = screen.finish();
        assert!(status.success());
        assert!(text.len() > 10 << 20);
        let mut expected = 1;
        for line in text.lines() {
            assert_eq!(line.parse(), Ok(expected));
            expected += 1;
        }
        assert_eq!(expected, 1_500_001);
        screen.assert_untouched();
    }

    /// The program ends while its output still waits for a terminal that reads nothing.
    fn a_stalled_terminal_loses_nothing(caller) {
        let place = Place::new(caller);
        // 19 kB: more than the host's terminal holds (about 12), less than both and saggar do (about 28).
        let script = "stty -opost; seq 4000; touch finished";
        let mut screen = Screen::script(&place, caller, ALL, script);
        crate::support::wait::until_exists(&place.work().join("finished"));
        let text = screen.finish().0;
        assert_eq!(text.lines().count(), 4000);
        assert!(text.ends_with("3999\n4000\n"));
    }

    /// 1 MiB of typing, more than every buffer on the way holds.
    fn a_long_input_arrives_whole(caller) {
        let place = Place::new(caller);
        let script = "stty raw -echo; echo up; head -c 1048576 | md5sum";
        let mut screen = Screen::script(&place, caller, ALL, script);
        screen.expect("up");
        let bytes: Vec<u8> = (0..1_048_576_u32).flat_map(|n| format!("{n:x}").into_bytes()).take(1 << 20).collect();
        let sum = {
            let path = place.join("bytes");
            std::fs::write(&path, &bytes).unwrap();
            let sum = std::process::Command::new("md5sum").stdin(std::fs::File::open(path).unwrap()).output();
            String::from_utf8(sum.unwrap().stdout).unwrap()
        };
        let typing = screen.type_slowly(bytes);
        screen.expect(sum.trim());
        typing.join().unwrap();
        assert!(screen.wait().success());
    }

    /// No race between the program's end and the end of its output.
    fn output_of_a_program_that_exits_at_once_is_complete(caller) {
        let place = Place::new(caller);
        for round in 0..200 {
            let mut screen = Screen::wrap(&place, caller, &["echo", "last words"]);
            let (text, status) = screen.finish();
            assert_eq!((text.as_str(), status.code()), ("last words\n", Some(0)), "round {round}");
        }
    }

    /// SIGTERM to saggar ends the program, and the terminal is as it was.
    fn the_terminal_is_as_before_after_signals(caller) {
        for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT] {
            let place = Place::new(caller);
            let mut screen = Screen::script(&place, caller, ALL, "echo up; exec sleep 1000");
            screen.expect("up");
            assert!(screen.is_raw() && !screen.processes_output());
            screen.signal(signal);
            assert_eq!(screen.wait().into_raw() >> 8, 128 + signal as i32);
            screen.assert_untouched();
        }
    }

    /// Stopped and continued: the shell gets its terminal as it was, and we take it again.
    fn a_stop_gives_the_terminal_back(caller) {
        let place = Place::new(caller);
        let mut screen = Screen::script(&place, caller, ALL, "echo up; exec cat");
        screen.expect("up");
        for round in ["one", "two"] {
            assert!(screen.is_raw());
            screen.signal(Signal::SIGTSTP);
            screen.wait_stopped();
            screen.assert_untouched();
            screen.signal(Signal::SIGCONT);
            screen.type_in(&format!("{round}\n"));
            screen.expect(round);
            screen.expect(round);
        }
        screen.type_in("\x04");
        assert!(screen.wait().success());
        screen.assert_untouched();
    }

    /// The host's terminal goes away: the program hears SIGHUP.
    fn a_hangup_reaches_the_program(caller) {
        let place = Place::new(caller);
        let script = "trap 'echo hung up > heard; exit' HUP; echo up; while :; do sleep 1000 & wait $!; done";
        let mut screen = Screen::wrap(&place, caller, &["bash", "-c", script]);
        screen.expect("up");
        screen.hang_up();
        screen.wait();
        assert_eq!(std::fs::read_to_string(place.work().join("heard")).unwrap(), "hung up\n");
    }

    /// The others of a pipeline write to the same terminal: their newlines go on to be carriage returns too.
    fn a_pipeline_keeps_its_newlines(caller) {
        let place = Place::new(caller);
        let script = "echo up >&2; cat; echo down the pipe";
        let mut screen = Screen::script(&place, caller, [Terminal, Pipe, Terminal], script);
        screen.expect("up");
        assert!(screen.is_raw() && screen.processes_output());
        screen.type_in("\x04");
        assert_eq!(read_all(screen.stdout()), "down the pipe\n");
        assert!(screen.wait().success());
        screen.assert_untouched();
    }

    /// With input from elsewhere, keys are the program's only while it has changed its terminal's modes.
    fn a_filter_takes_the_keyboard_when_it_asks(caller) {
        let place = Place::new(caller);
        let script = "echo up; cat; stty raw -echo <&1; echo ask; head -c 3 <&1; stty sane <&1; echo; \
                      echo done; read -r never < /dev/tty";
        let mut screen = Screen::script(&place, caller, [Pipe, Terminal, Terminal], script);
        screen.expect("up");
        screen.assert_untouched();
        drop(screen.stdin());
        screen.expect("ask");
        screen.type_in("key");
        screen.expect("key");
        screen.expect("done");
        screen.signal(Signal::SIGTERM);
        assert_eq!(screen.wait().code(), Some(143));
        screen.assert_untouched();
    }

    /// After su(1) the terminal may not be opened again; the shared description is given back as it was.
    fn another_users_terminal_works_and_stays_blocking(caller) {
        let place = Place::new(caller);
        let line = wrapped(&place, &["sh", "-c", "echo up; read line; echo \"got $line\""]);
        let mut screen = Screen::streams(&place, None, ALL, &line);
        screen.expect("up");
        screen.type_in("a line\n");
        screen.expect("got a line");
        assert!(screen.wait().success());
        screen.assert_untouched();
        assert!(!screen.is_nonblocking());
    }
}
