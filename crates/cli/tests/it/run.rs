//! `toolwright run` and `chat` against a server that speaks Chat Completions.

use std::io::{BufRead as _, BufReader, Read as _};

use crate::support::server::{Reply, Server};
use crate::support::{Home, end_of};
use serde_json::{Value, json};

const CALL: Reply = Reply::Calls(&[("day_name", r#"{"date":"31 December 1999"}"#)]);

#[test]
fn text_goes_to_output_and_tools_are_shown_beside_it() {
    let server = Server::new(vec![CALL, Reply::Text(&["It was a ", "Friday."])]);
    let ended = Home::new().run_with(&["run", "What day?", "--instructions", "Be brief."], &server.env(), "");
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "It was a Friday.\n"), "{}", ended.err);
    let lines: Vec<&str> = ended.err.lines().collect();
    assert_eq!(lines[0], r#"→ day_name {"date":"31 December 1999"}"#);
    assert!(lines[1].starts_with(r#"✓ day_name {"date":"1999-12-31","day":"Friday"} "#), "{}", lines[1]);
    assert_eq!(lines.len(), 2);
    let asked = server.request();
    assert_eq!(asked["messages"], json!([{ "role": "system", "content": "Be brief." }, { "role": "user", "content": "What day?" }]));
    assert_eq!(asked["tools"].as_array().unwrap().len(), 10);
}

#[test]
fn with_json_there_are_events_and_nothing_else() {
    let server = Server::new(vec![CALL, Reply::Text(&["Friday."])]);
    let ended = Home::new().run_with(&["run", "What day?", "--json"], &server.env(), "");
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
    let events: Vec<Value> = ended.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (index, event) in events.iter().enumerate() {
        assert_eq!((&event["seq"], &event["v"]), (&json!(index), &json!(1)), "{event}");
    }
    let kind = |name: &str| events.iter().find(|event| event["type"] == name).unwrap_or_else(|| panic!("no {name}: {}", ended.out));
    assert_eq!(events[0]["type"], "run.start");
    assert_eq!(kind("tool.start")["args"], json!({ "date": "31 December 1999" }));
    assert_eq!(kind("tool.done")["result"]["day"], "Friday");
    assert_eq!(kind("text.done")["text"], "Friday.");
    assert_eq!(events.last().unwrap()["finishReason"], "stop");
}

#[test]
fn a_request_is_read_from_a_pipe() {
    for arguments in [&["run"][..], &["run", "-"]] {
        let server = Server::new(vec![Reply::Text(&["Yes."])]);
        let ended = Home::new().run_with(arguments, &server.env(), "Is it so?");
        assert_eq!((ended.code, ended.out.as_str()), (Some(0), "Yes.\n"));
        assert_eq!(server.request()["messages"].as_array().unwrap().last().unwrap()["content"], "Is it so?");
    }
}

#[test]
fn a_call_that_fails_is_shown_and_the_run_goes_on() {
    let server = Server::new(vec![Reply::Calls(&[("day_name", r#"{"date":"soon"}"#)]), Reply::Text(&["I can't tell."])]);
    let ended = Home::new().run_with(&["run", "What day?"], &server.env(), "");
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "I can't tell.\n"));
    assert!(ended.err.contains("✗ day_name ToolArgumentsValidationError: "), "{}", ended.err);
}

#[test]
fn what_a_model_says_moves_no_cursor() {
    let server = Server::new(vec![Reply::Text(&["a\u{1b}[2Jb"])]);
    let ended = Home::new().run_with(&["run", "hi", "--color", "always"], &server.env(), "");
    assert_eq!(ended.out, "a[2Jb\n");
}

#[test]
fn a_run_that_fails_ends_with_1() {
    let server = Server::new(vec![Reply::Fails(401, "the key is wrong")]);
    let ended = Home::new().run_with(&["run", "hi"], &server.env(), "");
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""));
    assert!(
        ended.err.starts_with("error: ")
            && ended.err.contains("the key is wrong")
            && ended.err.contains("[TOOLWRIGHT_PROVIDER_REQUEST_FAILED]"),
        "{}",
        ended.err
    );
}

#[test]
fn only_a_finished_reply_is_a_success() {
    for (reply, code, said) in [
        (Reply::Ends("Once upon", "length"), 1, "the reply was cut at the model's output limit [TOOLWRIGHT_AGENT_OUTPUT_CUT]"),
        (Reply::Ends("", "content_filter"), 1, "the provider withheld the reply"),
        (Reply::Ends("Done.", "stop"), 0, ""),
    ] {
        let server = Server::new(vec![reply]);
        let ended = Home::new().run_with(&["run", "hi"], &server.env(), "");
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert!(ended.err.contains(said), "{}", ended.err);
    }
    let server = Server::new(vec![CALL, CALL]);
    let ended = Home::new().run_with(&["run", "hi", "--max-steps", "1"], &server.env(), "");
    assert_eq!(ended.code, Some(1));
    assert!(
        ended
            .err
            .contains("the run ended after 1 step without a final reply [TOOLWRIGHT_AGENT_MAX_STEPS]\nhint: allow more with --max-steps"),
        "{}",
        ended.err
    );
}

#[test]
fn a_reader_that_has_enough_ends_it_quietly() {
    let server = Server::new(vec![Reply::Held("first", "second")]);
    let home = Home::new();
    let mut child = home.start(&["run", "hi"], &server.env());
    let mut first = [0; 5];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    drop(child.stdout.take());
    server.release();
    let ended = end_of(child);
    assert_eq!((&first, ended.code, ended.err.as_str()), (b"first", Some(0), ""));
}

#[cfg(unix)]
#[test]
fn an_interrupt_stops_the_run_and_ends_with_130() {
    let server = Server::new(vec![Reply::Held("first", "second")]);
    let home = Home::new();
    let mut child = home.start(&["run", "hi"], &server.env());
    let mut first = [0; 5];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let ended = end_of(child);
    assert_eq!((ended.code, ended.err.as_str()), (Some(130), "stopping; press Ctrl-C again to stop at once\n"));
}

#[test]
fn a_conversation_keeps_its_history() {
    let server = Server::new(vec![Reply::Text(&["Hello, Kim."]), Reply::Text(&["Kim."])]);
    let ended = Home::new().run_with(&["chat"], &server.env(), "I am Kim.\n\n/tools\n/what\nWho am I?\n/quit\nnever sent\n");
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "Hello, Kim.\nKim.\n"), "{}", ended.err);
    assert!(ended.err.contains("todo_write") && ended.err.contains("there is no command `/what`"), "{}", ended.err);
    server.request();
    let said: Vec<Value> =
        server.request()["messages"].as_array().unwrap().iter().skip(1).map(|message| message["content"].clone()).collect();
    assert_eq!(said, ["I am Kim.", "Hello, Kim.", "Who am I?"]);
}

#[test]
fn a_conversation_goes_on_after_a_failed_run() {
    let server = Server::new(vec![Reply::Fails(400, "not like this"), Reply::Text(&["Better."])]);
    let ended = Home::new().run_with(&["chat"], &server.env(), "a\nb\n");
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "Better.\n"), "{}", ended.err);
    assert!(ended.err.contains("not like this"), "{}", ended.err);
}

#[test]
fn a_conversation_answers_line_by_line() {
    use std::io::Write as _;
    let server = Server::new(vec![Reply::Text(&["One."]), Reply::Text(&["Two."])]);
    let home = Home::new();
    let mut child = home.start(&["chat"], &server.env());
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    for answer in ["One.\n", "Two.\n"] {
        input.write_all(b"next\n").unwrap();
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, answer);
    }
    drop(input);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
