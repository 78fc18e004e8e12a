//! The examples about processes, run as a newcomer runs them.

#![expect(clippy::disallowed_methods, reason = "these tests run the programs")]
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "../../crates/store/tests/support/server.rs"]
mod server;

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Command;

/// What a program printed, once it ended well.
#[track_caller]
fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}\n{said}{}", output.status, String::from_utf8_lossy(&output.stderr));
    said
}

fn shared_threads() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shared_threads"));
    command.env_remove("TOOLWRIGHT_STORE");
    command
}

#[cfg(unix)]
#[test]
fn a_killed_job_is_resumed() {
    let said = printed(&mut Command::new(env!("CARGO_BIN_EXE_killed_and_resumed")));
    assert!(said.contains("SIGKILL") && said.contains("the other process ends the job: Both tables are in the warehouse."), "{said}");
    assert!(said.contains("\ncustomers ran 1 time, orders 2 times: only what was running at the kill ran again\n"), "{said}");
}

#[test]
fn a_refund_runs_once_two_people_have_approved_it() {
    let said = printed(&mut Command::new(env!("CARGO_BIN_EXE_two_approvals")));
    let lines: Vec<&str> = said.lines().filter(|line| !line.contains(" reads: ")).collect();
    let expected = [
        "awaiting-approval",
        "  ada approves",
        "the refund still waits",
        "  ada is refused: TOOLWRIGHT_APPROVAL_CONFLICT",
        "the refund still waits",
        "  mallory is refused: TOOLWRIGHT_APPROVAL_FORBIDDEN",
        "the refund still waits",
        "  grace approves",
        "Refunded: 1999 cents for order 1042, approved by ada and grace.",
    ];
    assert_eq!(lines, expected);
    assert_eq!(said.matches(r#" reads: refund wants to run with {"order":"1042","cents":1999}"#).count(), 4, "{said}");
}

#[test]
fn a_page_is_read_and_another_is_refused() {
    let said = printed(&mut Command::new(env!("CARGO_BIN_EXE_read_a_page")));
    assert!(said.contains(r"# Rain & wind\n\nIt rains until Tuesday (http://news.example/tuesday)."), "{said}");
    assert!(said.contains("news.example redirects to what is refused: 169.254.169.254 is not public"), "{said}");
    assert!(!said.contains("track()") && said.ends_with("It rains until Tuesday. The other page was refused.\n"), "{said}");
}

#[test]
fn a_result_that_a_webhook_posts_twice_counts_once() {
    let said = printed(&mut Command::new(env!("CARGO_BIN_EXE_paid_elsewhere")));
    let expected = [
        "awaiting-approval",
        r#"take_payment waits for its result, with {"cents":1999}"#,
        "  the webhook posts the receipt R-2026-17",
        "  the webhook comes again, and nothing has to be done",
        r#"Thank you, here is what we have: {"receipt":"R-2026-17"}"#,
    ];
    assert_eq!(said.lines().collect::<Vec<_>>(), expected);
}

#[cfg(unix)]
#[test]
fn edits_of_a_thread_are_taken_back() {
    let said = printed(&mut Command::new(env!("CARGO_BIN_EXE_edited_and_taken_back")));
    let expected = [
        "The plan begins on Tuesday.",
        r#"the file: "We begin on Tuesday.\r\n""#,
        "Somebody changed the plan; I leave it to you.",
        r#"the file: "We begin on Tuesday, at nine.\r\n""#,
        r#"restored [], left ["plan.md"]"#,
        r#"restored ["plan.md"], left []"#,
        r#"the file: "We begin on Monday.\r\n""#,
    ];
    assert_eq!(said.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn two_workers_share_the_threads_of_a_file() {
    let said = printed(&mut shared_threads());
    assert!(said.starts_with("no server is named, so the threads are in a file"), "{said}");
    assert!(said.contains("-anchor: 6 letters, counted by worker ") && said.contains("\n8 calls of 8 threads: "), "{said}");
}

#[test]
fn two_workers_share_the_threads_of_a_server() {
    let Some(server) = server::Server::shared() else { return };
    let said = printed(shared_threads().env("TOOLWRIGHT_STORE", server.url()));
    assert!(!said.contains("no server is named") && said.contains("\n8 calls of 8 threads: "), "{said}");
}

fn triage() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_triage"));
    for name in ["GITHUB_TOKEN", "GITHUB_API_URL", "GITHUB_REPOSITORY"] {
        command.env_remove(name);
    }
    command
}

#[test]
fn without_a_token_nothing_is_triaged() {
    assert_eq!(
        printed(&mut triage()),
        "GITHUB_TOKEN and GITHUB_REPOSITORY (such as `acme/shop`) are not set, so there is nothing to show\n"
    );
}

#[test]
fn an_issue_is_labelled_once_somebody_approves() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let api = format!("http://{}", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let mut asked = Vec::new();
        for body in [r#"{"number":1,"title":"Login fails","state":"open","comments":0}"#, r#"[{"name":"bug"}]"#] {
            let (mut socket, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            let mut piece = [0; 4096];
            // A head, and for the second request its body, which is the last thing that comes.
            while !request.ends_with(b"\r\n\r\n") && !request.ends_with(b"}") {
                let read = socket.read(&mut piece).unwrap();
                request.extend(piece.iter().take(read));
            }
            asked.push(String::from_utf8(request).unwrap());
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
            socket.write_all(head.as_bytes()).unwrap();
        }
        asked
    });
    let said = printed(
        triage().arg("approve").env("GITHUB_TOKEN", "tok-0123456789").env("GITHUB_API_URL", api).env("GITHUB_REPOSITORY", "acme/shop"),
    );
    let asked = server.join().unwrap();
    assert!(asked.iter().all(|request| request.contains("authorization: Bearer tok-0123456789\r\n")), "{asked:?}");
    let lines: Vec<&str> = asked.iter().filter_map(|request| request.lines().next()).collect();
    assert_eq!(lines, ["GET /repos/acme/shop/issues/1 HTTP/1.1", "POST /repos/acme/shop/issues/1/labels HTTP/1.1"]);
    let expected = [
        r#"label_github_issue wants to run with {"owner":"acme","repo":"shop","number":1,"labels":["bug"]}"#,
        "  somebody approves",
        "Issue 1 is a bug, and labelled as one.",
    ];
    assert_eq!(said.lines().collect::<Vec<_>>(), expected);
}
