//! `ask_question` (sdk-tools 14).

use toolwright_tool::{ApprovalOutcome, ApprovalRequest, Args, Ctx, ToolError, args, tool};

/// A question.
#[args]
#[serde(rename_all = "camelCase")]
pub struct Question {
    /// The question, in one sentence.
    pub question: String,
    /// Answers to choose from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<Vec<String>>,
    /// Whether an answer that is none of the options counts; true if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_free_text: Option<bool>,
}

/// What the user answered.
#[args]
#[derive(PartialEq, Eq)]
pub struct Answered {
    /// The answer, as it was given.
    pub answer: String,
    /// The index of the option that it is, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub option: Option<usize>,
}

impl Question {
    fn options(&self) -> &[String] {
        self.options.as_deref().unwrap_or_default()
    }

    /// Where nothing else can be chosen, any answer counts.
    fn takes_free_text(&self) -> bool {
        self.allow_free_text.unwrap_or(true) || self.options().is_empty()
    }
}

/// The call waits until somebody answers.
fn asks(Args(question): Args<Question>) -> ApprovalOutcome {
    ApprovalRequest::question(&question.question, question.options(), question.takes_free_text()).into()
}

/// Asks the user a question and waits for the answer. Use it when you can't go on without knowing.
#[tool(read_only, needs_approval = asks)]
pub async fn ask_question(Args(question): Args<Question>, Ctx(cx): Ctx) -> Result<Answered, ToolError> {
    let answer = cx.approval().and_then(|approval| approval.note.as_deref()).map(str::trim).filter(|answer| !answer.is_empty());
    let Some(answer) = answer else { return Err(ToolError::new("nobody answered the question").named("NoAnswerError")) };
    let folded = answer.to_lowercase();
    let option = question.options().iter().position(|option| option.trim().to_lowercase() == folded);
    if option.is_none() && !question.takes_free_text() {
        let options: Vec<String> = question.options().iter().map(|option| format!("{option:?}")).collect();
        return Err(ToolError::new(format!("the answer {answer:?} is none of the options {}", options.join(", "))).named("AnswerError"));
    }
    Ok(Answered { answer: answer.to_owned(), option })
}
