"""Leave out a check of labels, which models of transformers for speech make on the host.

The remedy `speech-labels` has these patches.
"""

from __future__ import annotations

from porting.remedies.entries import Edit, Patch

__all__ = ["PATCHES"]

_NO_CHECK = Edit("labels.max() >= self.config.vocab_size", "False")

_MODELS = (
    ("data2vec", "data2vec_audio", "Data2VecAudio"),
    ("hubert", "hubert", "Hubert"),
    ("sew", "sew", "SEW"),
    ("sew_d", "sew_d", "SEWD"),
    ("unispeech", "unispeech", "UniSpeech"),
    ("unispeech_sat", "unispeech_sat", "UniSpeechSat"),
    ("wav2vec2", "wav2vec2", "Wav2Vec2"),
    ("wav2vec2_bert", "wav2vec2_bert", "Wav2Vec2Bert"),
    ("wav2vec2_conformer", "wav2vec2_conformer", "Wav2Vec2Conformer"),
    ("wavlm", "wavlm", "WavLM"),
)

PATCHES = tuple(
    Patch(f"transformers.models.{folder}.modeling_{file}:{prefix}ForCTC.forward", edits=(_NO_CHECK,))
    for folder, file, prefix in _MODELS
)
