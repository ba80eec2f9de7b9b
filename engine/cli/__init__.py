"""The engine's commands for a terminal: chat, demo, bench, plan, models. No Qt; torch only where a model runs."""
