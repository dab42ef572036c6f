//! Whatever a server and an agent write, cut wherever: the bridge does not panic, what it writes is lines of JSON
//! objects that a client takes for events, and the cuts make no difference to what is understood.
#![no_main]

use libfuzzer_sys::fuzz_target;
use saggar::bridge::client::ReceivedEvent;
use saggar::bridge::adapter::{Adapter, NativeAdapter, StreamJsonAdapter};
use saggar::bridge::core::{BridgeAction, Bridge, BridgeConfig, ConnId, AgentExitStatus};
use saggar::bridge::proto::{BridgeCommand, LineSplitter, SplitLine};
use std::time::Duration;

/// Short, so that the limit is reached.
const LIMIT: usize = 4096;

fuzz_target!(|data: &[u8]| {
    let [kind, cut, rest @ ..] = data else { return };
    let cut = usize::from(*cut) + 1;
    assert_eq!(lines(rest, rest.len().max(1)), lines(rest, cut), "a cut changes the lines");
    for line in rest.split(|byte| *byte == b'\n') {
        if let Ok(Some(_)) = BridgeCommand::parse(line.into()) {
            assert!(line.trim_ascii_start().starts_with(b"{"), "a command that is no object");
        }
        // Whatever a bridge may be.
        let _ = ReceivedEvent::parse(line.to_vec());
    }
    let adapter: Box<dyn Adapter> = if kind & 1 == 0 { Box::new(StreamJsonAdapter::new()) } else { Box::new(NativeAdapter::demo()) };
    let mut bridge = Bridge::new(BridgeConfig { line_limit: LIMIT, ..BridgeConfig::default() }, adapter);
    let conn = ConnId(0);
    bridge.conn_opened(conn);
    for (at, piece) in rest.chunks(cut).enumerate() {
        bridge.tick(Duration::from_millis(100 * at as u64));
        // The server writes, the agent writes, the agent dies: which, the data say.
        match piece.first().map_or(0, |byte| byte & 0x80) | u8::from(at % 3 == 1) {
            0 => bridge.conn_input(conn, piece),
            1 => bridge.agent_output(piece),
            0x80 => bridge.agent_stderr(piece),
            _ => bridge.agent_exited(&AgentExitStatus::Code(1)),
        }
        act(&mut bridge, conn);
    }
    bridge.begin_termination();
    bridge.tick(Duration::from_secs(1 << 20));
    act(&mut bridge, conn);
});

/// The supervisor: everything is written at once, and starts succeed.
fn act(bridge: &mut Bridge, conn: ConnId) {
    while let Some(action) = bridge.next_action() {
        match action {
            BridgeAction::Send { bytes, .. } => {
                for line in bytes.strip_suffix(b"\n").expect("whole lines").split(|byte| *byte == b'\n') {
                    assert!(line.starts_with(b"{") && line.ends_with(b"}"));
                    let event = ReceivedEvent::parse(line.to_vec()).expect("an event");
                    assert!(event.message().is_none_or(|message| event.line().contains(message)));
                }
                bridge.conn_written(conn, bytes.len());
            }
            BridgeAction::StartAgent(_) => bridge.agent_started(),
            BridgeAction::AgentInput(bytes) => bridge.agent_input_written(bytes.len()),
            BridgeAction::StopAgent(_) => bridge.agent_exited(&AgentExitStatus::Code(0)),
            BridgeAction::RunExec { exec, .. } => bridge.exec_failed(exec, "not here"),
            _ => {}
        }
    }
}

fn lines(bytes: &[u8], cut: usize) -> Vec<Option<Vec<u8>>> {
    let mut splitter = LineSplitter::new(LIMIT);
    let mut found = Vec::new();
    for mut piece in bytes.chunks(cut) {
        while let Some(split) = splitter.next(&mut piece) {
            found.push(match split {
                SplitLine::Line(line) => Some(line.into_owned()),
                SplitLine::TooLong => None,
            });
        }
        assert!(splitter.held_bytes() <= LIMIT);
    }
    found
}
