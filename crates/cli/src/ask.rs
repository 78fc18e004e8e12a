//! Asking a person about a call that waits.

use toolwright::{Decision, PendingApproval};

use crate::exit::Exit;
use crate::follow::Answers;
use crate::interrupt::Interrupts;
use crate::lines::Lines;
use crate::problem::Problem;
use crate::terminal::{BOLD, DIM, Terminal, WARN, plain};

/// What came of asking.
pub(crate) enum Asked {
    Decided(Decision),
    /// Nobody answered.
    Open,
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
        Answers::Yes => return Ok(Asked::Decided(Decision::approve().by("--yes"))),
        Answers::Nobody => return Ok(Asked::Open),
        Answers::Person => {}
    }
    terminal.note(format_args!("{WARN}? {BOLD}{}{BOLD:#}{WARN:#} {}", plain(&pending.tool), plain(&pending.arguments)));
    if let Some(reason) = &pending.reason {
        terminal.note(format_args!("  {DIM}{}{DIM:#}", plain(reason)));
    }
    terminal.prompt("  run it? [y/N, or why not] ");
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
    Ok(Asked::Decided(read(&line).by("the command line")))
}

/// `y` is yes; nothing, or `n`, is no; anything else is no, and says why to the model.
fn read(line: &str) -> Decision {
    let answer = line.trim();
    match answer.to_lowercase().as_str() {
        "y" | "yes" => Decision::approve(),
        "" | "n" | "no" => Decision::reject(),
        _ => Decision::reject().note(answer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_yes_is_yes() {
        for yes in ["y", "Y", " yes "] {
            assert_eq!(read(yes), Decision::approve());
        }
        for no in ["", "n", "No"] {
            assert_eq!(read(no), Decision::reject());
        }
        assert_eq!(read("yes, but use the other list"), Decision::reject().note("yes, but use the other list"));
    }
}
