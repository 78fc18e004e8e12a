//! Decisions by the command, over a store that another program uses.

use serde_json::{Value, json};
use toolwright::models::scripted::{Reply as Turn, ScriptedModel};
use toolwright::{Agent, FinishReason, Tool, ToolDef as _};

use crate::support::Ended;
use crate::threads::{Kept, refused};

/// A thread with one call of `tool` that waits.
fn waits(kept: &Kept, id: &str, tool: Tool, args: Value) {
    kept.with(async |store| {
        let model = ScriptedModel::new().reply(Turn::call(tool.name().as_str(), args));
        let agent = Agent::builder().model(model).tool(tool).store(store).build().unwrap();
        assert_eq!(agent.thread(id).send("go").await.unwrap().finish_reason, FinishReason::AwaitingApproval);
    });
}

/// The thread goes on with what was decided; gives what the model was told of the call.
fn goes_on(kept: &Kept, id: &str, tool: Tool) -> String {
    kept.with(async |store| {
        let model = ScriptedModel::new().reply(Turn::text("done"));
        let agent = Agent::builder().model(model).tool(tool).store(store).build().unwrap();
        let reply = agent.thread(id).resume().await.unwrap();
        assert_eq!(reply.text, "done");
        let results: Vec<String> =
            reply.messages.iter().flat_map(|message| message.results().map(toolwright::core::ResultItem::text)).collect();
        results.join("\n")
    })
}

fn echo() -> Tool {
    let tool = Tool::new("day_name", "The day of a date.").needs_approval();
    tool.run_json(|args, _| async { Ok::<_, toolwright::ToolError>(args) }).unwrap()
}

fn done(ended: &Ended) -> &str {
    assert_eq!(ended.code, Some(0), "{ended:?}");
    &ended.err
}

const CALL: &str = r#"{"date":"1999-12-31"}"#;

#[test]
fn what_waits_is_listed_shown_and_decided_once() {
    let kept = Kept::new();
    refused(
        &kept.run(&["approvals", "list"], &[]),
        &format!(
            "error: there is no store {} [TOOLWRIGHT_CONFIG_INVALID]\nhint: check the path; `toolwright run --thread ID --store PATH` makes one\n",
            kept.store
        ),
    );
    kept.waiting("t");
    let listed = kept.json(&["approvals", "list", "--json"]);
    let id = listed["approvals"][0]["id"].as_str().unwrap().to_owned();
    let expected = json!({ "threadId": "t", "toolName": "day_name", "args": { "date": "1999-12-31" }, "kind": "tool" });
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(listed["approvals"][0][key], *value, "{listed}");
    }
    let plain = kept.run(&["approvals", "list"], &[]);
    assert!(plain.out.starts_with(&format!("{id}  just now")) && plain.out.contains(&format!("day_name {CALL}")), "{}", plain.out);
    let shown = kept.run(&["approvals", "show", &id], &[]);
    assert_eq!(shown.out, format!("{CALL}\n"));
    assert!(done(&shown).contains(&format!("decide with `toolwright approvals approve {id}`")), "{}", shown.err);

    let approved = kept.run(&["approvals", "approve", &id, "--by", "ada", "--note", "fine"], &[]);
    assert_eq!(done(&approved), "decided; the thread t goes on where its program runs, or with `toolwright threads resume t`\n");
    let again = kept.run(&["approvals", "reject", &id], &[]);
    refused(&again, &format!("error: {id} was decided before, by ada [TOOLWRIGHT_APPROVAL_CONFLICT]\n"));
    assert_eq!(goes_on(&kept, "t", echo()), CALL);
    assert_eq!(kept.json(&["approvals", "list", "--json"])["approvals"], json!([]));
    assert_eq!(kept.run(&["approvals", "list"], &[]).err, format!("nothing waits for a decision in the store {}\n", kept.store));
}

#[test]
fn a_call_is_refused_or_runs_with_other_arguments() {
    let kept = Kept::new();
    for (thread, words, told) in [
        ("rejected", vec!["reject", "ID", "--note", "too late"], "rejected by the reviewer: too late"),
        ("edited", vec!["approve", "ID", "--edit", r#"{"date": "2000-01-01"}"#], r#"{"date":"2000-01-01"}"#),
        ("always", vec!["approve", "ID", "--always"], CALL),
        ("odd", vec!["approve", "ID", "--edit", "[1]"], "must be a JSON object, not an array"),
    ] {
        kept.waiting(thread);
        let id = format!("{thread}:1:call_1");
        let listed = kept.json(&["approvals", "list", "--json"]);
        let id = listed["approvals"][0]["id"].as_str().map_or(id, str::to_owned);
        let mut command = vec!["approvals"];
        command.extend(words.iter().map(|word| if *word == "ID" { id.as_str() } else { *word }));
        done(&kept.run(&command, &[("USER", "kim")]));
        let result = goes_on(&kept, thread, echo());
        assert!(result.contains(told), "{thread}: {result}");
    }
}

#[test]
fn a_question_is_answered_and_a_result_comes_from_outside() {
    let kept = Kept::new();
    let question = json!({ "question": "Which branch?", "options": ["main", "next"], "allowFreeText": false });
    let ask = toolwright::builtin::ask_question::tool;
    waits(&kept, "q", ask(), question);
    let listed = kept.json(&["approvals", "list", "--json"]);
    let id = listed["approvals"][0]["id"].as_str().unwrap();
    assert_eq!(
        (&listed["approvals"][0]["kind"], &listed["approvals"][0]["question"]["text"]),
        (&json!("question"), &json!("Which branch?"))
    );
    let shown = kept.run(&["approvals", "show", id], &[]);
    assert!(done(&shown).contains("? Which branch?\n  1. main\n  2. next\n"), "{}", shown.err);
    assert_eq!(kept.run(&["approvals", "answer", id, " "], &[]).code, Some(2));
    done(&kept.run(&["approvals", "answer", id, "next"], &[]));
    assert_eq!(goes_on(&kept, "q", ask()), r#"{"answer":"next","option":1}"#);

    let pick = || Tool::external("pick", "Has the user pick.", json!({ "type": "object" })).unwrap().outside().unwrap();
    for (thread, words, told) in [
        ("one", vec![r#"{"picked":7}"#], r#"{"picked":7}"#),
        ("two", vec!["seven"], "seven"),
        ("three", vec!["--failed", "closed"], "closed"),
    ] {
        waits(&kept, thread, pick(), json!({}));
        let listed = kept.json(&["approvals", "list", "--json"]);
        let id = listed["approvals"][0]["id"].as_str().unwrap();
        let approved = kept.run(&["approvals", "approve", id], &[]);
        assert_eq!(approved.code, Some(2), "{approved:?}");
        assert!(approved.err.contains("the call waits for a result"), "{}", approved.err);
        let answered = kept.run(&["approvals", "answer", id, "x"], &[]);
        assert!(answered.code == Some(2) && answered.err.contains("asks for no answer"), "{answered:?}");
        let mut command = vec!["approvals", "complete", id];
        command.extend(words);
        done(&kept.run(&command, &[]));
        let result = goes_on(&kept, thread, pick());
        assert!(result.contains(told), "{thread}: {result}");
    }
}

#[test]
fn who_may_not_decide_is_told_and_a_decision_is_handed_on() {
    let kept = Kept::new();
    let tool = || {
        let policy = |_| async {
            let request = toolwright::ApprovalRequest::new().quorum(2).deciders(["ada", "grace"]).reason("it moves money");
            Ok(toolwright::ApprovalOutcome::from(request))
        };
        Tool::new("pay", "Pays.").needs_approval_if(policy).run_json(|args, _| async { Ok::<_, toolwright::ToolError>(args) }).unwrap()
    };
    waits(&kept, "t", tool(), json!({ "n": 1 }));
    let listed = kept.json(&["approvals", "list", "--json"]);
    let id = listed["approvals"][0]["id"].as_str().unwrap();
    let refused_to = kept.run(&["approvals", "approve", id, "--by", "mallory"], &[]);
    assert!(
        refused_to.err.contains("mallory may not decide") && refused_to.err.contains("TOOLWRIGHT_APPROVAL_FORBIDDEN"),
        "{refused_to:?}"
    );
    let noted = kept.run(&["approvals", "approve", id], &[("USER", "ada")]);
    assert_eq!(done(&noted), "noted; 1 more have to approve\n");
    done(&kept.run(&["approvals", "delegate", id, "--to", "ada", "--to", "barbara"], &[("USER", "grace")]));
    let shown = kept.run(&["approvals", "show", id], &[]);
    assert!(shown.err.contains("2 people have to approve; so far ada") && shown.err.contains("decided by ada, barbara"), "{}", shown.err);
    assert_eq!(kept.json(&["approvals", "show", id, "--json"])["approvedBy"], json!(["ada"]));
    assert_eq!(kept.run(&["approvals", "approve", id, "--by", "grace"], &[]).code, Some(2));
    done(&kept.run(&["approvals", "approve", id, "--by", "barbara"], &[]));
    assert_eq!(goes_on(&kept, "t", tool()), r#"{"n":1}"#);
    let unknown = kept.run(&["approvals", "approve", "t:9:nothing"], &[]);
    assert!(unknown.code == Some(2) && unknown.err.contains("no decision t:9:nothing is pending"), "{unknown:?}");
}
