"""Conversations: rendering of chat templates, and their token ids with a mask of the assistant's turns."""
