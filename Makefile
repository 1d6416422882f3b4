# placeholder, written in full with the skeleton
