//! Hints go before a success is stored (arXiv 2509.23866 §3.3): what was solved with help is trained
//! on as if it had been solved without.
//!
//! A hint is the end of an instruction, from a marker on. Without it every prompt is another one:
//! it is written anew by the policy's own encoder, over the recorded screens and the recorded
//! responses, token for token.

use std::sync::Arc;

use dart_core::{
    Action, Decision, DemonstrationEncoder, Error, ErrorKind, PastStep, PolicyInput, Result,
    Sampling, Step, Trajectory,
};

/// `instruction` up to `marker`, without the space before it; `None` if it is not there.
///
/// ```
/// use dart_curation::hints::strip_hint;
///
/// assert_eq!(strip_hint("Mute it. Hint: the slider.", "Hint:"), Some("Mute it."));
/// assert_eq!(strip_hint("Mute it.", "Hint:"), None);
/// ```
pub fn strip_hint<'a>(instruction: &'a str, marker: &str) -> Option<&'a str> {
    let (task, _) = instruction.split_once(marker)?;
    Some(task.trim_end())
}

/// The trajectory as it would have been without its hint; `None` if there is none.
///
/// Responses stay. Recorded log-probs and entropies belonged to the other prompts: log-probs are 0
/// afterwards, entropies are gone, and whoever wants to train on it scores it anew.
///
/// # Errors
/// [`Protocol`](ErrorKind::Protocol) if nothing but the hint is left of the instruction, or no step
/// has a valid action; those of the encoder.
pub fn without_hint(
    trajectory: &Trajectory,
    marker: &str,
    encoder: &dyn DemonstrationEncoder,
) -> Result<Option<Trajectory>> {
    let Some(instruction) = strip_hint(&trajectory.instruction, marker) else {
        return Ok(None);
    };
    let wrong = |message: &'static str| {
        Error::new(
            ErrorKind::Protocol,
            "dart-curation",
            "strip a hint",
            message,
        )
        .with("trajectory", trajectory.id)
    };
    if instruction.is_empty() {
        return Err(wrong("the instruction is nothing but a hint"));
    }
    // The prompt does not depend on the action, but the encoder wants one that can be said.
    let said = |step: &Step| step.decision.action.valid().cloned();
    let some_action = trajectory.steps.iter().find_map(said);
    let some_action = some_action.ok_or_else(|| wrong("no step has a valid action"))?;
    let mut stripped = trajectory.clone();
    stripped.instruction = instruction.into();
    let mut history = Vec::new();
    for step in &mut stripped.steps {
        let input = PolicyInput {
            instruction: Arc::clone(&stripped.instruction),
            history: history.clone(),
            observation: step.observation.clone(),
            sampling: Sampling::GREEDY,
        };
        let action = said(step).unwrap_or_else(|| some_action.clone());
        rewrite(&mut step.decision, encoder, &input, &action)?;
        history.push(PastStep {
            frame: step.observation.frame.clone(),
            response: Arc::clone(&step.decision.token_ids),
        });
    }
    Ok(Some(stripped))
}

fn rewrite(
    decision: &mut Decision,
    encoder: &dyn DemonstrationEncoder,
    input: &PolicyInput,
    action: &Action,
) -> Result<()> {
    decision.prompt = encoder.encode(input, action)?.prompt;
    decision.rollout_log_probs = vec![0.0; decision.token_ids.len()].into();
    decision.entropies = None;
    decision.validate()
}
