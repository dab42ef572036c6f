//! Job control on both sides of the wall.

use super::screen::{ALL, Screen, wrapped};
use crate::support::place::Place;

const BASH: [&str; 4] = ["bash", "--norc", "--noprofile", "-i"];

as_each_caller! {
    /// ^Z, fg and ^C are bytes on the way in, and job control inside.
    fn bash_has_job_control_inside(caller) {
        let place = Place::new(caller);
        let mut screen = Screen::wrap(&place, caller, &BASH);
        screen.type_in("PS1='ready> '; set -o | grep monitor\n");
        let said = screen.expect("\r\nready> ");
        assert!(!said.contains("no job control"), "{said}");
        assert!(said.contains("monitor        \ton"), "{said}");
        screen.type_in("sh -c 'echo a-$((1+1)); exec cat'\n");
        screen.expect("a-2");
        screen.type_in("\x1a");
        screen.expect("Stopped");
        screen.expect("ready> ");
        screen.type_in("fg\n");
        screen.expect("exec cat'\r\n");
        // bash names the job before it gives it the terminal: it has it when it answers.
        screen.type_in("hello\n");
        screen.expect("hello\r\nhello\r\n");
        screen.type_in("\x03");
        screen.expect("ready> ");
        screen.type_in("echo status $?\n");
        screen.expect("status 130");
        screen.type_in("exit 3\n");
        assert_eq!(screen.wait().code(), Some(3));
        screen.assert_untouched();
    }

    /// ^C and ^\ end a program without a shell.
    fn keys_that_end_a_program(caller) {
        for (key, code) in [("\x03", 130), ("\x1c", 131)] {
            let place = Place::new(caller);
            let mut screen = Screen::script(&place, caller, ALL, "echo up; exec sleep 1000");
            screen.expect("up");
            screen.type_in(key);
            assert_eq!(screen.wait().code(), Some(code));
            screen.assert_untouched();
        }
    }

    /// A background job prints, takes no key and changes no mode; in the foreground it takes over.
    fn a_background_job_does_not_steal_the_terminal(caller) {
        let place = Place::new(caller);
        let saggar = wrapped(&place, &["sh", "-c"]).join(" ");
        let mut screen = Screen::streams(&place, Some(caller), ALL, &BASH);
        screen.type_in("PS1='ready> '\n");
        screen.expect("\r\nready> ");
        screen.type_in(&format!("{saggar} 'echo up-$((1+1)); exec cat' &\n"));
        screen.expect("up-2");
        screen.type_in("echo mine-$((2+3))\n");
        screen.expect("mine-5");
        screen.expect("ready> ");
        screen.type_in("fg\n");
        screen.expect("exec cat'\r\n");
        screen.type_in("for cat\n");
        screen.expect("for cat");
        screen.expect("for cat");
        screen.type_in("\x04");
        screen.expect("ready> ");
        screen.type_in("exit 4\n");
        assert_eq!(screen.wait().code(), Some(4));
    }

    /// The shell outside sees saggar stop, has its terminal, and brings it back.
    fn the_shell_outside_stops_and_continues_it(caller) {
        let place = Place::new(caller);
        let saggar = wrapped(&place, &["sh", "-c"]).join(" ");
        let mut screen = Screen::streams(&place, Some(caller), ALL, &BASH);
        screen.type_in("PS1='ready> '; PATH=/usr/bin:/bin\n");
        screen.expect("\r\nready> ");
        screen.type_in(&format!("{saggar} 'echo up-$((1+1)); exec cat'\n"));
        screen.expect("up-2");
        let saggar = screen.foreground();
        nix::sys::signal::kill(saggar, nix::sys::signal::Signal::SIGTSTP).unwrap();
        screen.expect("Stopped");
        screen.expect("ready> ");
        screen.type_in("fg\n");
        screen.expect("exec cat'\r\n");
        screen.type_in("again\n");
        screen.expect("again");
        screen.expect("again");
        screen.type_in("\x04");
        screen.expect("ready> ");
        screen.type_in("exit 5\n");
        assert_eq!(screen.wait().code(), Some(5));
    }
}
