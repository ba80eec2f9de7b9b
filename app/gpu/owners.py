"""What a process is, told from its names, its command line and its control group.

Pure functions over text: who reads /proc is `processes`, who decides what may be ended is `protect`.
"""

import re
from collections.abc import Iterable

from app.gpu.record import ProcessKind

COMM_LENGTH = 15
"""The kernel keeps this many bytes of a thread's name (TASK_COMM_LEN - 1, proc(5))."""

_DESKTOP = re.compile(
    # Display servers, those for remote desktops included.
    r"x|xorg|xorg\.bin|xwayland.*|xvfb|xvfb-run|xephyr|xnest|xdummy|xvnc.*|xtigervnc.*|xtightvnc.*|x0(tiger)?vncserver"
    r"|(tiger|tight|turbo)?vncserver.*|vncsession|wayvnc|x11vnc|krfb|krdpserver|gnome-remote-de.*|xpra.*|xrdp.*"
    r"|nxagent|x2goagent|chrome-remote-de.*|kmscon.*|startx|xinit"
    # Compositors, window managers and what carries their session.
    r"|gnome-shell.*|gnome-session.*|gnome-keyring-d.*|gsd-.*|mutter.*|kwin.*|plasmashell"
    r"|plasma_session|ksmserver|startplasma.*|sway|swaybg|hyprland|weston.*|cosmic-comp|cosmic-session|niri|labwc"
    r"|gamescope.*|cage|phoc|phosh|gala|wayfire|river|cinnamon|cinnamon-sessio.*|muffin|xfwm4|xfce4-session|xfdesktop|marco|mate-session|budgie-wm"
    r"|openbox|i3|metacity|compiz|fluxbox|icewm.*|awesome|bspwm|dwm|qtile|xmonad.*|enlightenment.*"
    r"|lxqt-session|lxsession|gdm.*|sddm.*|lightdm.*|greetd|xdg-desktop-por.*"
    # Services without which the session or the card does not go on.
    r"|init|systemd.*|\(sd-pam\)|dbus-daemon|dbus-broker.*|pipewire.*|wireplumber|pulseaudio|polkitd"
    r"|networkmanager|sshd.*|login|nvidia-persiste.*|nvidia-powerd|nvidia-cuda-mps.*|dcgm|nv-hostengine"
    r"|dockerd|containerd.*",
    re.IGNORECASE,
)

_MODEL_SERVER_NAME = re.compile(
    r"ollama.*|llama-server|llama-swap|llama-cli|vllm.*|sglang.*|koboldcpp.*|lm[ -]?studio.*|lms|local-ai|localai"
    r"|tritonserver|text-generation.*|whisper-server|stable-diffusion.*|invokeai.*",
    re.IGNORECASE,
)
_MODEL_SERVER_COMMAND = re.compile(
    r"\bvllm(\.entrypoints|\s+serve)|-m\s+(vllm|sglang|llama_cpp\.server|mlx_lm)\b|\bcomfyui\b|\btabbyapi\b"
    r"|\btext-generation-(webui|launcher)\b|\bstable-diffusion-webui\b|\bkoboldcpp\b|\bopen-webui\b",
    re.IGNORECASE,
)
_NOTEBOOK_COMMAND = re.compile(r"\bipykernel(_launcher)?\b|\bjupyter[-\w]*\b|\bmarimo\b", re.IGNORECASE)


def is_desktop(names: Iterable[str]) -> bool:
    """Whether one of a process's names belongs to the desktop or to the services it stands on."""
    return any(_DESKTOP.fullmatch(name) for name in names)


def is_service(cgroup: str) -> bool:
    """Whether the last part of a control group's path names a service of systemd's.

    Everything in a user's session lies below `user@1000.service`: only the last part tells.
    """
    return cgroup.rpartition("/")[2].endswith(".service")


def role_of(*, names: Iterable[str], command: str, cgroup: str) -> ProcessKind:
    """What a process is, apart from whose it is."""
    names = tuple(names)
    if is_desktop(names):
        return ProcessKind.DESKTOP
    if any(_MODEL_SERVER_NAME.fullmatch(name) for name in names) or _MODEL_SERVER_COMMAND.search(command):
        return ProcessKind.MODEL_SERVER
    if _NOTEBOOK_COMMAND.search(command):
        return ProcessKind.NOTEBOOK
    return ProcessKind.SERVICE if is_service(cgroup) else ProcessKind.APPLICATION
