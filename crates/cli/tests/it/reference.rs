//! docs/command.md holds the help text of every command, so that a change of one shows in review.

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/command.md");
const MARK: &str = "<!-- Below this line: written by `UPDATE=1 cargo test -p toolwright-cli --test it reference`. -->\n";

#[test]
fn the_reference_is_fresh() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let (by_hand, generated) = page.split_once(MARK).expect("docs/command.md has lost its mark");
    let reference = toolwright_cli::reference();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(PAGE, format!("{by_hand}{MARK}{reference}")).unwrap();
        return;
    }
    assert!(
        generated == reference,
        "docs/command.md is not fresh; run `UPDATE=1 cargo test -p toolwright-cli --test it reference` and read the difference"
    );
}
