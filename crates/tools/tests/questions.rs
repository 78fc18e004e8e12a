//! `ask_question`, rule by rule.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use serde_json::{Value, json};
use toolwright_tool::core::AskKind;
use toolwright_tool::core::args::{Arguments, Repair};
use toolwright_tool::{Approval, ApprovalOutcome, ApprovalRequest, NeedsApproval, Running, ToolContext, ToolDef, ToolError};
use toolwright_tools::ask_question;

fn context(args: Value, answer: Option<&str>) -> ToolContext {
    let args = Arguments::from_value(args, &ask_question::tool().spec().input, Repair::On).unwrap();
    let mut parts = ToolContext::detached(args).parts().clone();
    parts.approval = answer.map(|answer| Approval { note: Some(answer.to_owned()), ..Approval::default() });
    ToolContext::new(parts)
}

async fn asked(args: Value) -> ApprovalRequest {
    let tool = ask_question::tool();
    let NeedsApproval::Policy(policy) = tool.needs_approval() else { panic!("a policy") };
    match policy(context(args, None)).await.unwrap() {
        ApprovalOutcome::AskFor(request) => *request,
        other => panic!("{other:?}"),
    }
}

async fn answered(args: Value, answer: Option<&str>) -> Result<Value, ToolError> {
    let Running::Future(body) = ask_question::tool().body().begin(context(args, answer)) else { panic!("an async tool") };
    Ok(body.await?.shown())
}

// rule: sdk-tools 14.2/1
#[tokio::test]
async fn the_call_waits_as_a_question() {
    let request = asked(json!({ "question": "Which branch?", "options": ["main", "next"], "allowFreeText": false })).await;
    assert_eq!(request.kind, AskKind::Question);
    let question = json!({ "text": "Which branch?", "options": ["main", "next"], "allowFreeText": false });
    assert_eq!(request.detail, Some(json!({ "question": question })));
    let open = asked(json!({ "question": "Why?", "allowFreeText": false })).await;
    assert_eq!(open.detail, Some(json!({ "question": { "text": "Why?", "allowFreeText": true } })), "nothing else could be answered");
    assert!(ask_question::tool().spec().annotations.read_only());
}

// rule: sdk-tools 14.2/2
#[tokio::test]
async fn an_answer_names_the_option_that_it_is() {
    let question = json!({ "question": "Which?", "options": ["Main", "Next Week"] });
    for (answer, expected) in [
        ("next week", json!({ "answer": "next week", "option": 1 })),
        (" MAIN ", json!({ "answer": "MAIN", "option": 0 })),
        ("neither", json!({ "answer": "neither" })),
    ] {
        assert_eq!(answered(question.clone(), Some(answer)).await.unwrap(), expected);
    }
}

// rule: sdk-tools 14.2/3
#[tokio::test]
async fn an_answer_outside_the_options_is_an_error_where_only_they_count() {
    let question = json!({ "question": "Which?", "options": ["a", "b"], "allowFreeText": false });
    let refused = answered(question.clone(), Some("c")).await.unwrap_err();
    assert!(refused.message().contains(r#""c" is none of the options "a", "b""#), "{}", refused.message());
    assert_eq!(answered(question.clone(), Some("B")).await.unwrap(), json!({ "answer": "B", "option": 1 }));
    for nothing in [None, Some(""), Some("  ")] {
        assert!(answered(question.clone(), nothing).await.unwrap_err().message().contains("nobody answered"));
    }
}
