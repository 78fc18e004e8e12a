//! What a wrong command line, and a wrong configuration, is answered with.

use crate::support::Home;

/// Exit code 2, nothing on standard output, and these lines on standard error.
#[track_caller]
fn refused(arguments: &[&str], env: &[(&str, &str)], said: &str) {
    let ended = Home::new().run_with(arguments, env, "");
    assert_eq!((ended.code, ended.out.as_str(), ended.err.as_str()), (Some(2), "", said), "{arguments:?}");
}

#[test]
fn a_mistyped_command_is_told_with_the_one_that_was_meant() {
    refused(&["rnu"], &[], "error: there is no command `rnu` [TOOLWRIGHT_CONFIG_INVALID]\nhint: did you mean `run`?\n");
    refused(&["tools", "lst"], &[], "error: there is no command `lst` [TOOLWRIGHT_CONFIG_INVALID]\nhint: did you mean `list`?\n");
    refused(&["frobnicate"], &[], "error: there is no command `frobnicate` [TOOLWRIGHT_CONFIG_INVALID]\nhint: see `toolwright --help`\n");
}

#[test]
fn options_are_strict() {
    refused(
        &["run", "--modle", "x", "hi"],
        &[],
        "error: there is no option `--modle` here [TOOLWRIGHT_CONFIG_INVALID]\nhint: did you mean `--model`?\n",
    );
    refused(
        &["run", "hi", "--max-steps", "0"],
        &[],
        "error: `0` is not a value of `--max-steps`: 0 is not in 1..=4294967295 [TOOLWRIGHT_CONFIG_INVALID]\nhint: see `toolwright run --help`\n",
    );
    refused(
        &["run", "hi", "--color", "maybe"],
        &[],
        "error: `maybe` is not a value of `--color` [TOOLWRIGHT_CONFIG_INVALID]\nhint: use one of auto, always, never\n",
    );
    refused(
        &["run", "hi", "--model"],
        &[],
        "error: `--model` needs a value [TOOLWRIGHT_CONFIG_INVALID]\nhint: see `toolwright run --help`\n",
    );
    refused(&["tools", "show"], &[], "error: <NAME> is missing [TOOLWRIGHT_CONFIG_INVALID]\nhint: see `toolwright tools show --help`\n");
    refused(
        &["run", "a", "b"],
        &[],
        "error: `b` is one argument too many [TOOLWRIGHT_CONFIG_INVALID]\nhint: see `toolwright run --help`\n",
    );
    refused(
        &["tools", "list", "--log", "a=b=c"],
        &[],
        "error: `a=b=c` is not a log filter: too many '=' in filter directive, expected 0 or 1 [TOOLWRIGHT_CONFIG_INVALID]\nhint: write a level (`debug`), or targets and levels (`toolwright_models=trace,info`)\n",
    );
}

#[test]
fn without_a_command_the_help_is_shown_and_nothing_is_done() {
    let ended = Home::new().run(&[]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""));
    assert!(ended.err.contains("Usage: toolwright"), "{}", ended.err);
}

#[test]
fn help_and_version_are_done() {
    for arguments in [&["--help"][..], &["run", "--help"], &["tools", "lint", "-h"], &["help", "models"]] {
        let ended = Home::new().run(arguments);
        assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{arguments:?}");
        assert!(ended.out.contains("Usage: toolwright"), "{}", ended.out);
    }
    let version = Home::new().run(&["--version"]);
    assert_eq!((version.code, version.out), (Some(0), format!("toolwright {}\n", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn an_empty_request_is_refused() {
    let hint = "hint: write it after the command, or pipe it in\n";
    refused(&["run", " "], &[], &format!("error: the request is empty [TOOLWRIGHT_CONFIG_INVALID]\n{hint}"));
    refused(&["run"], &[], &format!("error: the request is empty [TOOLWRIGHT_CONFIG_INVALID]\n{hint}"));
}

#[test]
fn a_model_that_can_not_be_had_is_told_before_anything_is_sent() {
    refused(
        &["run", "hi", "--model", "openai/gpt-4o-mini"],
        &[],
        "error: openai/gpt-4o-mini needs a key [TOOLWRIGHT_PROVIDER_MISSING_API_KEY]\nhint: set OPENAI_API_KEY\n",
    );
    refused(
        &["run", "hi"],
        &[("TOOLWRIGHT_MODEL", "opnai/x")],
        "error: no provider is called `opnai` [TOOLWRIGHT_PROVIDER_UNKNOWN]\nhint: did you mean `openai/x`? Known are openai, openrouter, deepseek, groq, mistral, xai, together, fireworks, moonshot, alibaba, ollama, vllm, llamacpp, lmstudio, compatible\n",
    );
    refused(
        &["models", "check", "gpt-4o"],
        &[],
        "error: the model `gpt-4o` has no provider in front [TOOLWRIGHT_PROVIDER_SPEC_INVALID]\nhint: write `openai/gpt-4o`\n",
    );
}

#[test]
fn colour_is_used_where_it_is_asked_for() {
    let home = Home::new();
    let painted = |ended: crate::support::Ended| (ended.out + &ended.err).contains('\u{1b}');
    assert!(!painted(home.run(&["tools", "list"])));
    assert!(painted(home.run(&["tools", "list", "--color", "always"])));
    assert!(painted(home.run(&["--color=always", "rnu"])));
    assert!(!painted(home.run_with(&["--color=never", "rnu"], &[("CLICOLOR_FORCE", "1")], "")));
}
