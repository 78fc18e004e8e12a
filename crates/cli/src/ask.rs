//! Asking a person about a call that waits.

use toolwright::{AskKind, Decision, PendingApproval};

use crate::exit::Exit;
use crate::follow::Answers;
use crate::interrupt::Interrupts;
use crate::lines::Lines;
use crate::problem::Problem;
use crate::terminal::{BOLD, DIM, Terminal, WARN, plain};

/// What came of asking.
pub(crate) enum Asked {
    Decided(Decision),
    /// Nobody answered, or nobody here can.
    Open,
}

/// The name that decisions of this person come with: the user's, as the system has it.
pub(crate) fn decider() -> String {
    let set = |name| std::env::var(name).ok().filter(|user: &String| !user.trim().is_empty());
    set("USER").or_else(|| set("LOGNAME")).unwrap_or_else(|| "the command line".to_owned())
}

/// Asks about one call. The arguments are shown whole: a person decides about what will run, not about its beginning.
pub(crate) async fn decide(
    pending: &PendingApproval,
    answers: Answers,
    lines: &mut Lines,
    interrupts: &mut Interrupts,
    terminal: &mut Terminal,
) -> Result<Asked, Problem> {
    match answers {
        // A yes is no answer to a question, and no result.
        Answers::Yes if matches!(pending.kind, AskKind::Tool | AskKind::Outcome) => {
            return Ok(Asked::Decided(Decision::approve().by("--yes")));
        }
        Answers::Yes | Answers::Nobody => return Ok(Asked::Open),
        Answers::Person => {}
    }
    shown(pending, terminal);
    let question = match pending.kind {
        AskKind::Tool => "  run it? [y/N, a to always run it in this thread, other arguments as {...}, or why not] ",
        AskKind::Outcome => "  run it again? [y/N, or why not] ",
        AskKind::Question => "  your answer, or nothing to decline: ",
        _ => return Ok(Asked::Open),
    };
    terminal.prompt(question);
    let line = tokio::select! {
        line = lines.next() => line,
        () = interrupts.next() => {
            terminal.note("");
            return Err(Problem::Quiet(Exit::Interrupted));
        }
    };
    let Some(line) = line else {
        terminal.note("");
        return Ok(Asked::Open);
    };
    let decision = if pending.kind == AskKind::Question { answer(&line, &options(pending)) } else { read(&line, &pending.kind) };
    Ok(Asked::Decided(decision.by(decider())))
}

/// What is asked, and what one has to know to decide.
pub(crate) fn shown(pending: &PendingApproval, terminal: &mut Terminal) {
    let question = pending.question();
    match &question {
        Some(question) => terminal.note(format_args!("{WARN}? {BOLD}{}{BOLD:#}{WARN:#}", plain(&question.text))),
        None => {
            terminal.note(format_args!("{WARN}? {BOLD}{}{BOLD:#}{WARN:#} {}", plain(&pending.tool), plain(&pending.arguments)));
        }
    }
    for (number, option) in options(pending).iter().enumerate() {
        terminal.note(format_args!("  {}. {}", number + 1, plain(option)));
    }
    if let Some(reason) = &pending.reason {
        terminal.note(format_args!("  {DIM}{}{DIM:#}", plain(reason)));
    }
    if pending.kind == AskKind::External {
        terminal.note(format_args!("  {DIM}its result comes from outside{DIM:#}"));
    }
    if pending.quorum > 1 {
        let so_far = if pending.approved_by.is_empty() { "nobody".to_owned() } else { pending.approved_by.join(", ") };
        terminal.note(format_args!("  {DIM}{} people have to approve; so far {}{DIM:#}", pending.quorum, plain(&so_far)));
    }
    if !pending.deciders.is_empty() {
        terminal.note(format_args!("  {DIM}decided by {}{DIM:#}", plain(&pending.deciders.join(", "))));
    }
    if let Some(until) = pending.expires_at {
        terminal.note(format_args!("  {DIM}until {}{DIM:#}", until.to_iso()));
    }
}

fn options(pending: &PendingApproval) -> Vec<String> {
    pending.question().map(|question| question.options).unwrap_or_default()
}

/// `y` is yes, `a` is yes from now on; nothing, or `n`, is no; an object is other arguments; anything else is no, and says why to the
/// model.
fn read(line: &str, kind: &AskKind) -> Decision {
    let answer = line.trim();
    match answer.to_lowercase().as_str() {
        "y" | "yes" => Decision::approve(),
        "a" | "always" if kind.is_tool() => Decision::approve().always(),
        "" | "n" | "no" => Decision::reject(),
        _ if answer.starts_with('{') && kind.is_tool() => Decision::approve_with(answer),
        _ => Decision::reject().note(answer),
    }
}

/// The number of an option stands for it, unless it is one itself.
fn answer(line: &str, options: &[String]) -> Decision {
    let answer = line.trim();
    if answer.is_empty() {
        return Decision::reject();
    }
    let is_option = options.iter().any(|option| option.trim().eq_ignore_ascii_case(answer));
    let numbered = answer.parse::<usize>().ok().and_then(|number| options.get(number.checked_sub(1)?)).filter(|_| !is_option);
    Decision::answer(numbered.map_or(answer, String::as_str))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_yes_is_yes() {
        let read = |line| read(line, &AskKind::Tool);
        for yes in ["y", "Y", " yes "] {
            assert_eq!(read(yes), Decision::approve());
        }
        for no in ["", "n", "No"] {
            assert_eq!(read(no), Decision::reject());
        }
        assert_eq!(read("a"), Decision::approve().always());
        assert_eq!(read(r#" {"n": 2} "#), Decision::approve_with(r#"{"n": 2}"#));
        assert_eq!(read("yes, but use the other list"), Decision::reject().note("yes, but use the other list"));
        assert_eq!(super::read("a", &AskKind::Outcome), Decision::reject().note("a"), "what was interrupted is decided each time");
    }

    #[test]
    fn an_option_is_named_or_numbered() {
        let options = ["main".to_owned(), "3".to_owned(), "next".to_owned()];
        for (line, said) in [("main", "main"), (" 1 ", "main"), ("3", "3"), ("2", "3"), ("4", "4"), ("0", "0"), ("neither", "neither")] {
            assert_eq!(answer(line, &options), Decision::answer(said), "{line}");
        }
        assert_eq!(answer("  ", &options), Decision::reject());
    }
}
