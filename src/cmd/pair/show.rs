//! What is printed of runs: `status`, `log`, `watch`, `list` and `export`.

use super::timeline::{TimelineFormat, TimelinePrinter};
use super::{open_run, place_of};
use crate::app::pair::{self, Timeline};
use crate::cli::pair::{PairListArgs, PairRunIdArgs, PairShowArgs};
use crate::cmd::{print_as, print_raw, print_text};
use crate::error::Result;
use crate::text::one_line;
use saggar_mailbox::pair::Progress;
use saggar_mailbox::runs::{RunRecord, Runs};
use saggar_mailbox::{ErrorKind, Limits, Message};
use serde_json::{Value, json};
use std::io::IsTerminal;
use std::thread;
use std::time::Duration;

/// How often `watch` looks for new messages.
const WATCH_INTERVAL: Duration = Duration::from_millis(200);
/// How often `watch` finds no process that runs the agents before it ends: a run that begins has none for a moment.
const WATCH_IDLE: u32 = 10;

pub(super) fn status(args: &PairShowArgs) -> Result<u8> {
    let run = open_run(&args.id)?;
    let settings = pair::settings(run.record())?;
    let mut mailbox = run.mailbox(Limits::default())?;
    let mut progress = Progress::default();
    mailbox.read_on(&mut None, |message| -> Result<()> {
        progress.apply(&settings, message);
        Ok(())
    })?;
    let counts = mailbox.statistics()?;
    let is_running = run.is_running().unwrap_or(false);
    let record = run.record();
    if args.json {
        let line = json!({
            "run": record.run_id, "task": record.task, "state": state(record, is_running),
            "worker": settings.worker, "reviewer": settings.reviewer,
            "iteration": progress.iteration(), "maxIterations": record.max_iterations,
            "active": record.active, "outcome": record.outcome,
            "messages": counts.total, "done": counts.done, "pass": counts.pass, "fail": counts.fail,
        });
        print_raw(&format!("{line}\n"))?;
        return Ok(0);
    }
    let mut rows = vec![
        ("run", record.run_id.to_string()),
        ("task", one_line(&record.task).into_owned()),
        ("state", state(record, is_running)),
        ("worker", settings.worker.clone()),
        ("reviewer", settings.reviewer.clone()),
        ("iteration", format!("{} of {}", progress.iteration(), record.max_iterations)),
        ("messages", counts.total.to_string()),
        ("signals", format!("DONE {}, PASS {}, FAIL {}", yes_no(counts.done), counts.pass, counts.fail)),
    ];
    rows.extend(record.active.iter().map(|active| ("turn of", active.clone())));
    print_text(&rows.iter().map(|(name, value)| format!("{name:<10}  {value}\n")).collect::<String>())?;
    Ok(0)
}

pub(super) fn log(args: &PairShowArgs) -> Result<u8> {
    let run = open_run(&args.id)?;
    let mut printer = TimelinePrinter::new(TimelineFormat::chosen(args.json));
    run.mailbox(Limits::default())?.read_on(&mut None, |message| printer.show(message))?;
    Ok(0)
}

pub(super) fn watch(args: &PairShowArgs) -> Result<u8> {
    let mut printer = TimelinePrinter::new(TimelineFormat::chosen(args.json));
    let mut mailbox = open_run(&args.id)?.mailbox(Limits::default())?;
    let (mut position, mut idle) = (None, 0);
    loop {
        // The state first: every message of the run is older than its end.
        let run = open_run(&args.id)?;
        let is_running = run.is_running()?;
        mailbox.read_on(&mut position, |message| printer.show(message))?;
        if let Some(outcome) = &run.record().outcome {
            printer.end(args.id.run, outcome)?;
            return Ok(0);
        }
        // A runner that was killed has left no outcome.
        idle = if is_running { 0 } else { idle + 1 };
        if idle == WATCH_IDLE {
            printer.stopped(args.id.run)?;
            return Ok(0);
        }
        thread::sleep(WATCH_INTERVAL);
    }
}

pub(super) fn list(args: &PairListArgs) -> Result<u8> {
    let (root, repo) = place_of(&args.place)?;
    let Some(runs) = Runs::find(&root, &repo)? else { return Ok(0) };
    for number in runs.list()? {
        let run = match runs.open_run(number) {
            // Other runs have no agents that a command of pair could run.
            Ok(run) if run.record().launch.is_some() => run,
            Ok(_) => continue,
            // Another program began it.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => {
                log::warn!("{error}");
                continue;
            }
        };
        let state = state(run.record(), run.is_running().unwrap_or(false));
        let RunRecord { created, task, .. } = run.record();
        if args.json {
            let line = json!({ "run": number, "created": created, "state": state, "task": task });
            print_raw(&format!("{line}\n"))?;
        } else {
            let task = task.lines().next().unwrap_or_default();
            print_text(&format!("{number:<6}  {created}  {state:<14}  {}\n", one_line(task)))?;
        }
    }
    Ok(0)
}

pub(super) fn export(id: &PairRunIdArgs) -> Result<u8> {
    let run = open_run(id)?;
    let record = run.record();
    let mut text = format!("# Run {}\n\n- Created: {}\n", record.run_id, record.created);
    for member in &record.members {
        text.push_str(&format!("- Member: {}\n", member.name));
    }
    if let Some(outcome) = &record.outcome {
        text.push_str(&format!("- Outcome: {outcome}\n"));
    }
    // A terminal gets no control sequences of an agent.
    let is_terminal = std::io::stdout().is_terminal();
    print_as(!is_terminal, &text)?;
    run.mailbox(Limits::default())?
        .read_on(&mut None, |message| print_as(!is_terminal, &markdown(message)))?;
    Ok(0)
}

/// A section with the content in a fence that is longer than any in it.
fn markdown(message: &Message) -> String {
    let longest = message.content.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    let to = if message.to.is_empty() { "all" } else { &message.to };
    let signal = message.effective_signal().map(|signal| format!(" {signal}")).unwrap_or_default();
    let line_end = if message.content.ends_with('\n') { "" } else { "\n" };
    format!(
        "\n## {} to {to}: {}{signal}\n\n{}\n\n{fence}\n{}{line_end}{fence}\n",
        message.from, message.message_type, message.timestamp, message.content
    )
}

fn state(record: &RunRecord, is_running: bool) -> String {
    match (&record.outcome, is_running) {
        (_, true) => "running".to_owned(),
        (Some(outcome), _) => {
            let outcome = serde_json::to_value(outcome).unwrap_or_default();
            outcome.get("result").and_then(Value::as_str).unwrap_or_default().to_owned()
        }
        (None, _) => "stopped".to_owned(),
    }
}

fn yes_no(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}
