//! What `saggar agent DIR PROMPT` says on a terminal while the agent is at work.

use super::screen::Stream::{Pipe, Terminal};
use super::screen::{ALL, Screen, read_all};
use crate::support::place::Place;

fn line(place: &Place, prompt: &str) -> Vec<String> {
    let saggar = place.saggar().get_program().to_str().unwrap().to_owned();
    let work = place.work().to_str().unwrap().to_owned();
    [&saggar, "agent", &work, "--workspace", &work, "--adapter", "demo", prompt].map(str::to_owned).to_vec()
}

as_each_caller! {
    /// The tool by its name, with the time, on a line that is taken away before the answer.
    fn running_tool_is_shown_and_its_line_is_erased(caller) {
        let place = Place::new(caller);
        place.make_file("work/CLAUDE.md", "The folder of a test.\n");
        let mut screen = Screen::streams(&place, Some(caller), ALL, &line(&place, "run: sleep 2.5"));
        let (text, status) = screen.finish();
        assert!(status.success(), "{text}");
        // More than once, and in the end two seconds; more where the machine is busy.
        let (before, last) = text.rsplit_once("\x1b[KBash … ").unwrap_or_else(|| panic!("{text:?}"));
        let (seconds, after) = last.split_once(" s").unwrap_or_else(|| panic!("{text:?}"));
        assert!(before.contains("[Bash]") && before.contains("\x1b[KBash … "), "{text:?}");
        assert!(seconds.parse::<u64>().is_ok_and(|seconds| seconds >= 2), "{text:?}");
        assert!(after.starts_with("\r\x1b[K") && after.contains("ended with code 0"), "{text:?}");
        assert_eq!(after.matches(" s").count(), 0, "nothing comes back: {text:?}");
    }

    /// A pipe gets the messages and nothing that drives a terminal, wherever standard error goes.
    fn progress_is_not_printed_to_a_pipe(caller) {
        let place = Place::new(caller);
        place.make_file("work/CLAUDE.md", "The folder of a test.\n");
        let mut screen = Screen::streams(&place, Some(caller), [Terminal, Pipe, Terminal], &line(&place, "run: sleep 1.5"));
        let said = read_all(screen.child.stdout.take().unwrap());
        let (text, status) = screen.finish();
        assert!(status.success(), "{text}");
        assert!(!text.contains('\x1b') && !text.contains(" … "), "{text:?}");
        assert!(said.lines().all(|line| line.starts_with('{')) && said.contains("\"result\""), "{said}");
    }
}
